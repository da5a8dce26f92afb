# expost in a container. Tables and results are in the folder that is mounted at /data:
#
#   docker build --tag expost .
#   docker run --rm --volume "$PWD":/data --user "$(id -u):$(id -g)" expost profile people.csv --target income
#
# With extras of the package: docker build --build-arg EXTRAS=models --tag expost .
# The base is pinned to a minor version, so that it gets the fixes of its distribution.
FROM python:3.12-slim-bookworm AS build
ARG EXTRAS=
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY tools/long_description.py tools/
COPY src src
RUN python -m pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .
RUN python -m venv /opt/expost
RUN /opt/expost/bin/python -m pip install --no-cache-dir "$(echo /wheels/*.whl)${EXTRAS:+[$EXTRAS]}"

FROM python:3.12-slim-bookworm
COPY --from=build /opt/expost /opt/expost
# No compiler, no source and no root: the program writes to /data alone.
RUN useradd --uid 10001 --create-home expost && install --directory --owner expost /data
ENV PATH=/opt/expost/bin:$PATH
# Fonts and settings that matplotlib keeps, for any --user.
ENV MPLCONFIGDIR=/tmp/matplotlib
USER expost
WORKDIR /data
VOLUME /data
ENTRYPOINT ["expost"]
CMD ["--help"]
