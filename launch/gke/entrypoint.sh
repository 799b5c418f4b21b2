#!/usr/bin/env bash
#
# The entry point of the image: `tupe ARGUMENTS`, unless the run makes no progress.
#
# The first pod of the first slice checks it for all. JobSet restarts all pods after any exit code
# except 2, so that code ends the run. If the check fails for another reason (the storage fails), it
# is repeated, and then JobSet restarts all pods, at most 100 times.
set -euo pipefail

if [[ ${JOB_COMPLETION_INDEX:?} == 0 && ${TUPE_SLICE:?} == 0 ]]; then
  for ((failed = 0; ; failed++)); do
    code=0
    tupe check-progress "${TUPE_WORKDIR:?}" --job="${TUPE_TOKEN:?}" --retries="${TUPE_RETRIES:?}" ||
      code=$?
    ((code != 0)) || break
    ((code != 2 && ${TUPE_RESTART:-0} < 100)) || exit 2
    ((failed < TUPE_RETRIES)) || exit "$code"
    echo "entrypoint.sh: progress unknown (exit code $code); checking again" >&2
    sleep "${TUPE_PAUSE:-60}"
  done
fi
# exec: tupe gets SIGTERM from Kubernetes, saves and exits with code 75.
exec tupe "$@"
