"""Samples to measure: Pods as a ReplicaSet controller sends them, node pools, manifests, and non-matching policies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pathlib import Path

NAMESPACE: Final = "team-a"


def pod(*, containers: int, variables: int) -> dict[str, Any]:
    """Return a realistic Pod of a ReplicaSet on spot, with probes, volumes, env, and managedFields."""
    labels = {
        "app.kubernetes.io/instance": "checkout",
        "app.kubernetes.io/name": "checkout",
        "app.kubernetes.io/version": "2.14.1",
        "pod-template-hash": "6d5f7c9b48",
        "spotgate.dev/capacity": "spot",
    }
    annotations = {
        "checksum/config": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        "prometheus.io/path": "/metrics",
        "prometheus.io/port": "9090",
        "prometheus.io/scrape": "true",
    }
    owner = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "name": "checkout-6d5f7c9b48",
        "uid": "5f4dcc3b-5aa7-45d6-9d83-27deb882cf99",
        "controller": True,
        "blockOwnerDeletion": True,
    }
    token = {
        "sources": [
            {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
            {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        ],
        "defaultMode": 420,
    }
    spec = {
        "containers": [_container(f"part-{number}", variables) for number in range(containers)],
        "volumes": [
            {"name": "config", "configMap": {"name": "checkout", "defaultMode": 420}},
            {"name": "scratch", "emptyDir": {"sizeLimit": "2Gi"}},
            {"name": "kube-api-access-x7k2p", "projected": token},
        ],
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": 30,
        "dnsPolicy": "ClusterFirst",
        "serviceAccountName": "checkout",
        "serviceAccount": "checkout",
        "securityContext": {"runAsNonRoot": True, "runAsUser": 10001, "fsGroup": 10001},
        "schedulerName": "default-scheduler",
        "tolerations": [
            {
                "key": f"node.kubernetes.io/{state}",
                "operator": "Exists",
                "effect": "NoExecute",
                "tolerationSeconds": 300,
            }
            for state in ("not-ready", "unreachable")
        ],
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": "topology.kubernetes.io/zone",
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": {"app.kubernetes.io/name": "checkout"}},
            }
        ],
        "priority": 0,
        "enableServiceLinks": True,
        "preemptionPolicy": "PreemptLowerPriority",
    }
    metadata: dict[str, Any] = {
        "generateName": "checkout-6d5f7c9b48-",
        "namespace": NAMESPACE,
        "creationTimestamp": None,
        "labels": labels,
        "annotations": annotations,
        "ownerReferences": [owner],
    }
    metadata["managedFields"] = [
        {
            "manager": "kube-controller-manager",
            "operation": "Update",
            "apiVersion": "v1",
            "time": "2026-11-02T09:14:31Z",
            "fieldsType": "FieldsV1",
            "fieldsV1": _fields({"metadata": {"labels": labels, "annotations": annotations}, "spec": spec}),
        }
    ]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": {}}


def _container(name: str, variables: int) -> dict[str, Any]:
    probe = {
        "httpGet": {"path": "/ready", "port": "http", "scheme": "HTTP"},
        "timeoutSeconds": 2,
        "periodSeconds": 10,
        "successThreshold": 1,
        "failureThreshold": 3,
    }
    env: list[dict[str, Any]] = [
        {"name": "POD_NAME", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}}},
        {"name": "DATABASE_URL", "valueFrom": {"secretKeyRef": {"name": "checkout-database", "key": "url"}}},
    ]
    env += [{"name": f"CHECKOUT_SETTING_{number}", "value": f"value-{number}"} for number in range(variables)]
    return {
        "name": name,
        "image": f"registry.example.com/checkout/{name}:2.14.1",
        "args": ["--listen=:8080", "--log-format=json"],
        "ports": [{"name": "http", "containerPort": 8080, "protocol": "TCP"}],
        "env": env,
        "resources": {"requests": {"cpu": "250m", "memory": "512Mi"}, "limits": {"memory": "512Mi"}},
        "volumeMounts": [
            {"name": "config", "readOnly": True, "mountPath": "/etc/checkout"},
            {"name": "scratch", "mountPath": "/var/scratch/checkout"},
            {
                "name": "kube-api-access-x7k2p",
                "readOnly": True,
                "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount",
            },
        ],
        "livenessProbe": {**probe, "initialDelaySeconds": 15},
        "readinessProbe": probe,
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "imagePullPolicy": "IfNotPresent",
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }


def _fields(value: object) -> dict[str, Any]:
    """Return the ``fieldsV1`` of a value: its members, and its list items by name."""
    if isinstance(value, dict):
        return {f"f:{key}": _fields(member) for key, member in value.items()}
    if isinstance(value, list):
        named = [item for item in value if isinstance(item, dict) and "name" in item]
        return {f'k:{{"name":"{item["name"]}"}}': {".": {}, **_fields(item)} for item in named}
    return {}


def cluster() -> list[dict[str, Any]]:
    """Return the state of a CKS cluster: a namespace, and six node pools, three of them spot, three with GPUs."""
    pools = [
        ("system", "turin-gp", "default", []),
        ("cpu", "cd-gp-a192-genoa", "default", []),
        ("cpu-spot", "cd-gp-a192-genoa", "spot", ["example.com/spot"]),
        ("h100", "gd-8xh100ib-i128", "default", ["is_gpu"]),
        ("h100-spot", "gd-8xh100ib-i128", "spot", ["example.com/spot", "is_gpu"]),
        ("l40-spot", "gd-8xl40-i128", "spot", ["example.com/spot", "is_gpu"]),
    ]
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": {"tier": "web"}}}
    return [namespace, *(_pool(*pool) for pool in pools)]


def _pool(name: str, instance_type: str, compute_class: str, taints: list[str]) -> dict[str, Any]:
    return {
        "apiVersion": "compute.coreweave.com/v1alpha1",
        "kind": "NodePool",
        "metadata": {"name": name},
        "spec": {
            "computeClass": compute_class,
            "instanceType": instance_type,
            "autoscaling": True,
            "minNodes": 0,
            "targetNodes": 2,
            "maxNodes": 8,
            "nodeLabels": {"example.com/capacity": compute_class},
            "nodeTaints": [{"key": taint, "value": "true", "effect": "NoSchedule"} for taint in taints],
        },
    }


def write_policies(folder: Path, count: int) -> None:
    """Write policies that never match our Pods: half are for other resources, half for Pods in other namespaces."""
    for number in range(count):
        match = (
            f'{{resourceRules: [{{apiGroups: [group-{number}.example.com], resources: [widgets], operations: ["*"]}}]}}'
            if number % 2
            else f"{{namespaces: {{include: [other-{number}-*]}}}}"
        )
        text = (
            "apiVersion: spotgate.dev/v1\n"
            "kind: ReservedLabels\n"
            f"metadata: {{name: other-{number}}}\n"
            f"spec: {{match: {match}, domains: [reserved-{number}.example.com]}}\n"
        )
        (folder / f"other-{number}.yaml").write_text(text)


_MANIFEST: Final = """\
apiVersion: apps/v1
kind: Deployment
metadata:
  name: service-{number}
  namespace: team-a
  labels:
    app.kubernetes.io/name: service-{number}
    app.kubernetes.io/part-of: shop
spec:
  replicas: 3
  selector:
    matchLabels:
      app.kubernetes.io/name: service-{number}
  template:
    metadata:
      labels:
        app.kubernetes.io/name: service-{number}
        app.kubernetes.io/part-of: shop
        spotgate.dev/capacity: {capacity}
      annotations:
        prometheus.io/scrape: "true"
        prometheus.io/port: "9090"
    spec:
      serviceAccountName: service
      securityContext:
        runAsNonRoot: true
        runAsUser: 10001
      containers:
        - name: service
          image: registry.example.com/shop/service-{number}:1.4.2
          args: ["--listen=:8080"]
          ports:
            - name: http
              containerPort: 8080
          env:
            - name: POD_NAME
              valueFrom:
                fieldRef:
                  fieldPath: metadata.name
            - name: DATABASE_URL
              valueFrom:
                secretKeyRef:
                  name: service-{number}
                  key: url
            - name: LOG_LEVEL
              value: info
          resources:
            requests:
              cpu: 250m
              memory: 512Mi
            limits:
              memory: 512Mi
          readinessProbe:
            httpGet:
              path: /ready
              port: http
            periodSeconds: 10
          livenessProbe:
            httpGet:
              path: /live
              port: http
            initialDelaySeconds: 15
          volumeMounts:
            - name: config
              mountPath: /etc/service
      volumes:
        - name: config
          configMap:
            name: service-{number}
"""


def manifest(number: int) -> str:
    """Return a Deployment of about 70 lines; every other one targets spot."""
    return _MANIFEST.format(number=number, capacity="spot" if number % 2 else "on-demand")
