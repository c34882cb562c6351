# The operator alone: one static binary, which scripts/image puts beside this file. No shell, no library, no other file; it carries the
# roots of public certificate authorities itself.
FROM scratch
COPY sts-plus /sts-plus
USER 65532:65532
ENTRYPOINT ["/sts-plus"]
CMD ["run"]
