# One image per binary, each with that binary, licences and nothing else. make image builds these first; nothing is pulled.
# make release builds the same images without a container engine (hack/release). Both build with GOWORK=off.
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
COPY bin/linux-${TARGETARCH}/licenses/spot-aware-scheduler /licenses
USER 65532:65532
ENTRYPOINT ["/spot-aware-scheduler"]

FROM scratch AS controller
ARG TARGETARCH
ARG VERSION
LABEL org.opencontainers.image.title="spot-controller" \
      org.opencontainers.image.description="Moves pods off spot nodes that are about to be reclaimed, and back to spot" \
      org.opencontainers.image.source="https://github.com/spot-aware-scheduler/spot-aware-scheduler" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}"
COPY bin/linux-${TARGETARCH}/spot-controller /spot-controller
COPY bin/linux-${TARGETARCH}/licenses/spot-controller /licenses
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
COPY bin/linux-${TARGETARCH}/licenses/spot-extender /licenses
USER 65532:65532
ENTRYPOINT ["/spot-extender"]
