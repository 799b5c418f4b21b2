#!/usr/bin/env bash
#
# Pre-training on TPU slices of a GKE cluster, as a JobSet.
#
#   launch/gke/submit.sh --name=tupe-r --target=v5e:16x16 --image=IMAGE \
#     -- pretrain --config=tupe_r --workdir=gs://BUCKET/tupe_r
#
# Submits launch/gke/jobset.yaml; --dry-run prints the manifest instead. launch/README.md shows how to
# create the cluster, the image and the bucket.
set -euo pipefail
here=$(dirname "${BASH_SOURCE[0]}")

dry_run='' options=()
while (($#)); do
  case $1 in
    --dry-run) dry_run=yes ;;
    --help) sed -n '3,/^set /{/^set /d;s/^# \{0,1\}//p;}' "${BASH_SOURCE[0]}" && options+=(--help) ;;
    --) break ;;
    *) options+=("$1") ;;
  esac
  shift
done

manifest=$(python3 "$here/render.py" "${options[@]}" "$@")
if [[ -n $dry_run || " ${options[*]} " == *' --help '* ]]; then
  [[ -z $dry_run ]] || echo "# kubectl apply --filename=- with:"
  echo "$manifest"
else
  kubectl apply --filename=- <<<"$manifest"
fi
