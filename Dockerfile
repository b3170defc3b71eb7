# One image per binary, each with that binary and nothing else. make image builds the binaries first; nothing is pulled.
# Every stage gets: TARGETARCH, and VERSION for the labels.
FROM scratch AS scheduler
ARG TARGETARCH
ARG VERSION
LABEL org.opencontainers.image.title="spot-aware-scheduler" \
      org.opencontainers.image.description="Runs workloads on spot nodes as far as is safe" \
      org.opencontainers.image.source="https://github.com/spot-aware-scheduler/spot-aware-scheduler" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}"
COPY bin/linux-${TARGETARCH}/spot-aware-scheduler /spot-aware-scheduler
USER 65532:65532
ENTRYPOINT ["/spot-aware-scheduler"]

FROM scratch AS controller
ARG TARGETARCH
ARG VERSION
LABEL org.opencontainers.image.title="spot-controller" \
      org.opencontainers.image.description="Moves pods off spot nodes that go, to where the policy wants them, and back to spot" \
      org.opencontainers.image.source="https://github.com/spot-aware-scheduler/spot-aware-scheduler" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}"
COPY bin/linux-${TARGETARCH}/spot-controller /spot-controller
USER 65532:65532
ENTRYPOINT ["/spot-controller"]

FROM scratch AS extender
ARG TARGETARCH
ARG VERSION
LABEL org.opencontainers.image.title="spot-extender" \
      org.opencontainers.image.description="Gives a stock kube-scheduler the placement decisions of spot-aware-scheduler" \
      org.opencontainers.image.source="https://github.com/spot-aware-scheduler/spot-aware-scheduler" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}"
COPY bin/linux-${TARGETARCH}/spot-extender /spot-extender
USER 65532:65532
ENTRYPOINT ["/spot-extender"]
