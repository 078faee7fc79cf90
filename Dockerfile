# syntax=docker/dockerfile:1
# Convoy with its bundled model: it starts without network. PyPI's torch brings CUDA; the NVIDIA runtime brings the driver.
ARG BASE_IMAGE=python:3.12-slim-bookworm

FROM ${BASE_IMAGE} AS build
ARG PIP_FIND_LINKS
ARG PIP_CERT
WORKDIR /src
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY app ./app
RUN python3 -m venv /opt/convoy \
 && /opt/convoy/bin/pip install --no-cache-dir --disable-pip-version-check -c constraints.txt . \
 && /opt/convoy/bin/pip uninstall -y -q pip setuptools wheel \
 && find /opt/convoy -depth \( -name __pycache__ -o -name tests -path '*/torch/*' \) -exec rm -rf {} +

FROM ${BASE_IMAGE}
RUN useradd --uid 10001 --create-home --home-dir /home/convoy convoy \
 && mkdir /models && chown convoy /models
COPY --from=build /opt/convoy /opt/convoy
ENV PATH=/opt/convoy/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 HF_HOME=/models \
    CONVOY_HOST=0.0.0.0 CONVOY_PORT=8000
USER 10001
EXPOSE 8000
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=3s --start-period=120s --retries=3 \
  CMD ["python3", "-c", "import os, urllib.request as r; r.urlopen('http://127.0.0.1:' + os.environ['CONVOY_PORT'] + '/ready', timeout=2)"]
ENTRYPOINT ["python3", "-m", "app"]
CMD ["serve"]
