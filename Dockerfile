# syntax=docker/dockerfile:1
# Pinned by tag for reading; a release pins the digest too: `--build-arg PYTHON=python:3.12-slim@sha256:...`.
ARG PYTHON=python:3.12-slim

FROM ${PYTHON} AS build
WORKDIR /src
COPY requirements ./requirements
# The runtime's own environment, made where it will lie, so that its scripts' first lines are right.
RUN python -m venv /opt/spotgate \
 && /opt/spotgate/bin/pip install --no-cache-dir --require-hashes --requirement requirements/runtime.txt
# The build backend comes from the lock too, in an environment that is left behind.
RUN python -m venv /opt/build \
 && /opt/build/bin/pip install --no-cache-dir --require-hashes --requirement requirements/dev.txt
COPY . .
RUN /opt/build/bin/pip wheel --no-cache-dir --no-deps --no-build-isolation --wheel-dir /dist . \
 && /opt/spotgate/bin/pip install --no-cache-dir --no-deps /dist/*.whl \
 && /opt/spotgate/bin/pip uninstall --yes pip \
 && /opt/spotgate/bin/spotgate --help > /dev/null

FROM ${PYTHON}
COPY --from=build /opt/spotgate /opt/spotgate
# The last: glibc gives back what a large request took. Left to itself, it keeps up to 32 MiB of each arena at hand.
ENV PATH=/opt/spotgate/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 MALLOC_TRIM_THRESHOLD_=131072
USER 65532:65532
EXPOSE 8443 8080
ENTRYPOINT ["spotgate"]
CMD ["serve", "--listen", "0.0.0.0:8443", "--ops", "0.0.0.0:8080", "--in-cluster", "--tls-cert", "/tls/tls.crt", "--tls-key", "/tls/tls.key"]
