# The base image, by the digest of its index. Only this line names it. To update it, run:
#   docker buildx imagetools inspect python:3.13-slim-trixie
ARG PYTHON=python:3.13.15-slim-trixie@sha256:9d2e5553305c7c7b0097999bb17187c69b921ccd6bc9d40e4bb5ebe652c00285

# The programs of a rehearsal's control plane, only for the target `rehearsal`. Keep the digests in webhook/rehearse/controlplane/images.py in sync.
ARG ETCD=registry.k8s.io/etcd@sha256:6ecefbe2510c4a30573a62a4d6dd175acf881ca67003fcd91849a16df7a724d5
ARG KWOK=registry.k8s.io/kwok/kwok@sha256:6d25aa8fbdfe78845423160bf125b5513f9522e2770981f0945c2a250c2b26f0
ARG KUBE_APISERVER=registry.k8s.io/kube-apiserver@sha256:d1045e5c6d2f016797d22143eba7502e1bb712a4681836a7c35763a9c192dd70
ARG KUBE_CONTROLLER_MANAGER=registry.k8s.io/kube-controller-manager@sha256:997c997924eb8574f63f204a0b0af133aaf33c10df84009c32d34037f4e0e077
ARG KUBE_SCHEDULER=registry.k8s.io/kube-scheduler@sha256:a27622f132aa09cf2461ba077894a070c0186ec607366d14e805912d4804d11f

FROM ${ETCD} AS etcd
FROM ${KWOK} AS kwok
FROM ${KUBE_APISERVER} AS kube-apiserver
FROM ${KUBE_CONTROLLER_MANAGER} AS kube-controller-manager
FROM ${KUBE_SCHEDULER} AS kube-scheduler

FROM ${PYTHON} AS build
# Builds are reproducible: no file contains a build time, and nothing depends on the order of a set.
ARG SOURCE_DATE_EPOCH=0
ENV SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH} PYTHONHASHSEED=0 PYTHONDONTWRITEBYTECODE=1 \
    PIP_NO_COMPILE=1 PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /src
COPY requirements ./requirements
# The shipped environment has no pip. Create it at its final path, because its scripts contain the path.
RUN python -m venv --without-pip /opt/spotgate \
 && python -m pip --python /opt/spotgate install --require-hashes --requirement requirements/runtime.txt
# The build tools are also locked, but aren't shipped.
RUN python -m venv --without-pip /opt/build \
 && python -m pip --python /opt/build install --require-hashes --requirement requirements/build.txt
COPY . .
RUN /opt/build/bin/python -m hatchling build --target wheel --directory /dist \
 && python -m pip --python /opt/spotgate install --no-deps /dist/*.whl
# The image contains Python, its libraries, and the environment: no shell, package manager, or pip.
RUN /opt/build/bin/python image/assemble.py /rootfs

FROM scratch AS webhook
ARG VERSION=0.1.0
ARG REVISION=unknown
ARG SOURCE=https://github.com/example/spotgate
LABEL org.opencontainers.image.title="spotgate" \
      org.opencontainers.image.description="Admission control for Kubernetes workloads on spot capacity" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.source="${SOURCE}"
COPY --from=build /rootfs/ /
# The MALLOC variables make glibc return the memory of large requests. By default, it keeps up to 32 MiB of each arena.
# With a threshold below 256 KiB, the size of uvloop's decryption buffer, each request would map and unmap memory, which takes 0.1 ms or more.
ENV PATH=/opt/spotgate/bin PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 \
    MALLOC_TRIM_THRESHOLD_=524288 MALLOC_MMAP_THRESHOLD_=524288
USER 65532:65532
EXPOSE 8443 8080
ENTRYPOINT ["spotgate"]
CMD ["serve", "--listen", "0.0.0.0:8443", "--ops", "0.0.0.0:8080", "--in-cluster", "--tls-cert", "/tls/tls.crt", "--tls-key", "/tls/tls.key"]

# kube-apiserver has the file capability cap_net_bind_service. If the container drops all capabilities, the kernel refuses to
# start the program. `install` copies it without the capability.
FROM ${PYTHON} AS programs
COPY --from=etcd /usr/local/bin/etcd /upstream/
COPY --from=kwok /usr/local/bin/kwok /upstream/
COPY --from=kube-apiserver /usr/local/bin/kube-apiserver /upstream/
COPY --from=kube-controller-manager /usr/local/bin/kube-controller-manager /upstream/
COPY --from=kube-scheduler /usr/local/bin/kube-scheduler /upstream/
RUN install -D --mode=0755 --target-directory=/opt/controlplane /upstream/*

# The image for manifests/components/rehearsal: docker build --target rehearsal
FROM webhook AS rehearsal
COPY --from=programs /opt/controlplane/ /opt/controlplane/
ENV KUBEBUILDER_ASSETS=/opt/controlplane HOME=/tmp

# `docker build` builds the last target by default.
FROM webhook
