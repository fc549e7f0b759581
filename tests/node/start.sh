#!/bin/sh
# Start containerd and kubelet, in a new mount and PID namespace: `start.sh FOLDER` with the files of node.py.
# When this process ends, the kernel kills all other processes of the namespace, and removes its mounts.
set -eu
cd "$1"
mount -t tmpfs tmpfs /run     # the sockets of shims
mount -t tmpfs tmpfs /var/log # links to the logs of containers
for name in vm/overcommit_memory vm/panic_on_oom kernel/panic kernel/panic_on_oops kernel/keys/root_maxbytes kernel/keys/root_maxkeys; do
  copy="sysctl-${name##*/}" # kubelet would set it for the whole machine
  cat "/proc/sys/$name" >"$copy"
  mount --bind "$copy" "/proc/sys/$name"
done
PATH="$PWD/bin:$PATH"
containerd --config=containerd.toml &
until ctr --address="$PWD/containerd.sock" --namespace=k8s.io \
  images import --local --snapshotter=native image.tar; do sleep 0.2; done
kubelet --config=kubelet.yaml --kubeconfig=kubeconfig --root-dir="$PWD/kubelet" --cert-dir="$PWD/kubelet" \
  --hostname-override=node --v=2
