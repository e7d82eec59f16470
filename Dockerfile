# syntax=docker/dockerfile:1

# The base is pinned by its full tag, which still receives rebuilds. A release pins the digest too, so that it can be built again:
#   docker build --build-arg PYTHON_IMAGE=python:3.13.5-slim-bookworm@sha256:<digest> .
# docs/image.md says where the digest comes from, and how to sign and check the result.
ARG PYTHON_IMAGE=python:3.13.5-slim-bookworm

# Everything pip needs stays in this stage; only /opt/gpuwatch leaves it.
FROM ${PYTHON_IMAGE} AS build
# A fixed seed: the order of sets must not show in compiled files.
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PYTHONHASHSEED=0
RUN ["python", "-m", "venv", "/opt/build"]
RUN ["python", "-m", "venv", "--without-pip", "/opt/gpuwatch"]
COPY requirements/runtime.txt requirements/build.txt /source/requirements/
# Wheels only: nothing is compiled from C, so the image needs no compiler.
RUN ["/opt/build/bin/pip", "--python", "/opt/gpuwatch/bin/python", "install", "--no-compile", "--require-hashes", "--only-binary", ":all:", "-r", "/source/requirements/runtime.txt"]
RUN ["/opt/build/bin/pip", "install", "--require-hashes", "--only-binary", ":all:", "-r", "/source/requirements/build.txt"]
COPY pyproject.toml README.md LICENSE /source/
COPY gpuwatch /source/gpuwatch
RUN ["/opt/build/bin/pip", "wheel", "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", "/wheel", "/source"]
RUN ["/opt/build/bin/pip", "--python", "/opt/gpuwatch/bin/python", "install", "--no-compile", "--no-deps", "--no-index", "--find-links", "/wheel", "gpuwatch"]
# Compiled files that hold the hash of their source instead of its time: two builds give the same bytes, and a file system that cannot be
# written is no slower.
RUN ["/opt/gpuwatch/bin/python", "-m", "compileall", "-q", "-f", "--invalidation-mode", "unchecked-hash", "/opt/gpuwatch/lib"]

FROM ${PYTHON_IMAGE}
ARG REVISION=unknown
LABEL org.opencontainers.image.title="gpuwatch" \
      org.opencontainers.image.description="Prometheus metrics of NVIDIA GPUs that stay right when a GPU or a driver misbehaves" \
      org.opencontainers.image.version="0.1.0" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.source="https://github.com/gpuwatch/gpuwatch" \
      org.opencontainers.image.documentation="https://github.com/gpuwatch/gpuwatch/blob/main/README.md" \
      org.opencontainers.image.vendor="The gpuwatch maintainers" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /opt/gpuwatch /opt/gpuwatch
# glibc gives each thread an arena of its own, which costs 5 MiB here and buys nothing: threads mostly wait.
ENV MALLOC_ARENA_MAX=1
# The NVIDIA container runtime reads the two NVIDIA_* variables: all GPUs, and of the driver only NVML.
ENV PATH=/opt/gpuwatch/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=utility
# Nobody: reading GPUs needs no rights. The kubelet's PodResources socket lets in uid 0 alone, so where it is to be read the chart sets
# runAsUser: 0, and drops every capability that would make that uid more than a number.
USER 65534:65534
EXPOSE 9838
ENTRYPOINT ["gpuwatch"]
CMD ["run"]
