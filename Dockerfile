# Convoy with its bundled model: it starts without network. PyPI's torch brings CUDA; the host needs the NVIDIA driver only.
# For a smaller image that runs on CPUs alone: --build-arg PIP_EXTRA_INDEX_URL=<PyTorch's index of CPU wheels>
ARG BASE_IMAGE=python:3.12-slim-bookworm

FROM ${BASE_IMAGE} AS build
ARG PIP_EXTRA_INDEX_URL
ARG PIP_FIND_LINKS
ARG PIP_CERT
WORKDIR /build
# The dependencies alone, so that a change of code neither installs nor ships them again.
COPY pyproject.toml constraints.txt ./
RUN python3 -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["dependencies"], sep="\n")' > requirements.txt \
 && python3 -m venv --without-pip /opt/convoy \
 && python3 -m pip --python /opt/convoy/bin/python3 --disable-pip-version-check \
      install --no-cache-dir -c constraints.txt -r requirements.txt
