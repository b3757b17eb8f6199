# The service in a container: `docker build -t hermod .`, then
#
#   docker run --init --rm --read-only --tmpfs /tmp -p 127.0.0.1:7717:7717 -v hermod:/var/lib/hermod --name hermod hermod
#   docker exec hermod hermod tokens create --name ci --scopes read,submit
#
# The default base has no shell, so the tool `shell` runs nothing there; files are read and written. With commands, use a
# base that has /bin/sh: `--build-arg BASE=debian:bookworm-slim`. `--init` reaps what commands leave behind.
#
# All that the service writes is below /var/lib/hermod: `--read-only` makes the rest read-only. Commands of models need a /tmp then.
ARG BASE=gcr.io/distroless/cc-debian12:nonroot

FROM rust:1.95-bookworm AS build
WORKDIR /src
COPY . .
RUN cargo build --profile dist --locked --bin hermod
RUN mkdir -p -m 700 /root-of-image/var/lib/hermod/state /root-of-image/var/lib/hermod/workspace

FROM ${BASE}
COPY --from=build /src/target/dist/hermod /usr/local/bin/hermod
COPY --from=build --chown=65532:65532 /root-of-image/ /
USER 65532:65532
ENV HERMOD_HOME=/var/lib/hermod/state PATH=/usr/local/bin:/usr/bin:/bin
WORKDIR /var/lib/hermod/workspace
VOLUME /var/lib/hermod
EXPOSE 7717
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=30s --timeout=5s --start-period=30s CMD ["/usr/local/bin/hermod", "status"]
ENTRYPOINT ["/usr/local/bin/hermod"]
# The port is published by Docker: keep it on this machine, or put a proxy with TLS in front.
CMD ["serve", "--listen", "0.0.0.0:7717", "--behind-proxy"]
