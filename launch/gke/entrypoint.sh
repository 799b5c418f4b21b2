#!/usr/bin/env bash
#
# The entry point of the image: `tupe ARGUMENTS`, unless the run makes no progress.
#
# The first pod of the first slice checks it for all. JobSet restarts all pods after any exit code
# except 2, so that code ends the run.
set -euo pipefail

if [[ ${JOB_COMPLETION_INDEX:?} == 0 && ${TUPE_SLICE:?} == 0 ]]; then
  tupe check-progress "${TUPE_WORKDIR:?}" --job="${TUPE_TOKEN:?}" --retries="${TUPE_RETRIES:?}" ||
    exit 2
fi
# exec: tupe gets SIGTERM from Kubernetes, saves and exits with code 75.
exec tupe "$@"
