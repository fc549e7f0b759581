"""Objects of the built-in kinds without Pods, each with what has defaults and little more."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import yaml

from tests.controlplane.parity_corpus import PLAIN

if TYPE_CHECKING:
    from collections.abc import Iterator

JSON = dict[str, Any]

_OBJECTS = """\
{apiVersion: v1, kind: Endpoints, subsets: [{addresses: [{ip: 192.0.2.1}], ports: [{port: 80}]}]}
---
apiVersion: v1
kind: LimitRange
spec: {limits: [{type: Container, default: {cpu: 1}, max: {memory: 1024Mi, cpu: 2}, min: {memory: 5Mi}}]}
---
{apiVersion: v1, kind: Namespace}
---
apiVersion: v1
kind: PersistentVolume
spec: {accessModes: [ReadWriteOnce], capacity: {storage: 1024Mi}, hostPath: {path: /x}}
---
apiVersion: v1
kind: PersistentVolumeClaim
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1024Mi}}}
---
{apiVersion: v1, kind: ResourceQuota, spec: {hard: {cpu: 1000m, pods: 5}}}
---
{apiVersion: v1, kind: Secret, data: {a: eHg=}, stringData: {a: b, c: ü}}
---
{apiVersion: v1, kind: Service, spec: {type: LoadBalancer, sessionAffinity: ClientIP, ports: [{port: 80}]}}
---
apiVersion: autoscaling/v1
kind: HorizontalPodAutoscaler
spec: {maxReplicas: 3, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}}
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
spec: {maxReplicas: 3, behavior: {}, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
addressType: IPv4
endpoints: [{addresses: [192.0.2.1]}]
ports: [{port: 80}]
---
apiVersion: networking.k8s.io/v1
kind: IngressClass
spec: {controller: a.example/b, parameters: {kind: X, name: y}}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
spec: {podSelector: {}, egress: [{ports: [{port: 80}]}]}
---
{apiVersion: node.k8s.io/v1, kind: RuntimeClass, handler: x, overhead: {podFixed: {memory: 1024Mi}}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
roleRef: {kind: ClusterRole, name: view}
subjects: [{kind: User, name: jane}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
roleRef: {kind: ClusterRole, name: view}
subjects: [{kind: Group, name: devs}, {kind: ServiceAccount, name: default, namespace: default}]
---
{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, value: 5}
---
{apiVersion: storage.k8s.io/v1, kind: CSIDriver, spec: {}}
---
{apiVersion: storage.k8s.io/v1, kind: StorageClass, provisioner: a.example/b}
"""


def objects() -> Iterator[JSON]:
    """One of each kind, by the name `defaulted`; those without a namespace are cluster-scoped."""
    cluster_scoped = {"ClusterRoleBinding", "CSIDriver", "IngressClass", "Namespace", "PersistentVolume"}
    cluster_scoped |= {"PriorityClass", "RuntimeClass", "StorageClass"}
    for thing in yaml.safe_load_all(_OBJECTS):
        namespace = {} if thing["kind"] in cluster_scoped else {"namespace": PLAIN}
        yield {**thing, "metadata": {"name": "defaulted", **namespace}}
