#!/usr/bin/env bash
#
# Pre-training on a Cloud TPU slice, or several: create, install, run, resume after preemption, delete.
#
#   launch/tpu_vm.sh COMMAND --name=NAME --zone=ZONE [OPTIONS] [-- ARGUMENTS OF TUPE]
#
#   create   request the slice as a queued resource, which waits for capacity
#   install  install Python and the package and mount the bucket, on every worker; repeatable
#   run      start `tupe ARGUMENTS` on every worker; it outlives this shell
#   status   print the state of the queued resource, and of the run on every worker
#   logs     print the last lines of the run (--worker=N, --lines=N)
#   stop     send SIGTERM on every worker: the run saves and exits with code 75
#   resume   until the run is finished: create, install and run what is missing, again after every
#            preemption and failure; `tupe pretrain` resumes from its --workdir
#   delete   delete the slice and its disks, which ends the charges
#
#   --name=NAME              name of the queued resource                        (all commands)
#   --zone=ZONE              such as us-west4-a                                 (all commands)
#   --project=PROJECT        default: the project of gcloud                     (all commands)
#   --accelerator=TYPE       such as v5litepod-256, v5p-128, v6e-256, v4-128    (create, resume)
#   --slices=N               number of such slices (default 1)                  (create, resume)
#   --spot                   cheaper, may be preempted at any time              (create, resume)
#   --reserved               use the project's reservation                      (create, resume)
#   --runtime-version=NAME   default: depends on the accelerator                (create, resume)
#   --service-account=EMAIL  service account of the workers                     (create, resume)
#   --wheel=FILE             the package, built by `pip wheel --no-deps .`      (install, resume)
#   --git=URL@REVISION       the package, from a repository                     (install, resume)
#   --bucket=NAME            mount it on every worker as /mnt/NAME              (install, run, resume)
#   --poll=SECONDS           polling interval (default 60)                      (resume)
#   --retries=N              restarts without a newer checkpoint (default 3)    (resume)
#   --dry-run                print the commands without running them            (all commands)
#   --help
set -euo pipefail

die() {
  echo "launch/tpu_vm.sh: $*" >&2
  exit 2
}

help() { sed -n '3,/^set /{/^set /d;s/^# \{0,1\}//p;}' "${BASH_SOURCE[0]}"; }

number() { # NAME VALUE
  [[ $2 =~ ^[0-9]+$ ]] || die "$1=$2 must be a whole number"
}

action=${1:-}
case $action in
  create | install | run | status | logs | stop | resume | delete) shift ;;
  --help) help && exit ;;
  '') die "no command; --help lists them" ;;
  *) die "no command $action; --help lists them" ;;
esac

name='' zone='' project='' accelerator='' slices=1 spot='' reserved='' runtime_version=''
service_account='' wheel='' git='' bucket='' poll=60 retries=3 worker=0 lines=50 dry_run=''
while (($#)); do
  case $1 in
    --name=*) name=${1#*=} ;;
    --zone=*) zone=${1#*=} ;;
    --project=*) project=${1#*=} ;;
    --accelerator=*) accelerator=${1#*=} ;;
    --slices=*) slices=${1#*=} ;;
    --spot) spot=yes ;;
    --reserved) reserved=yes ;;
    --runtime-version=*) runtime_version=${1#*=} ;;
    --service-account=*) service_account=${1#*=} ;;
    --wheel=*) wheel=${1#*=} ;;
    --git=*) git=${1#*=} ;;
    --bucket=*) bucket=${1#*=} ;;
    --poll=*) poll=${1#*=} ;;
    --retries=*) retries=${1#*=} ;;
    --worker=*) worker=${1#*=} ;;
    --lines=*) lines=${1#*=} ;;
    --dry-run) dry_run=yes ;;
    --help) help && exit ;;
    --) shift && break ;;
    *) die "unknown argument $1; tupe's arguments come after --, and --help lists the rest" ;;
  esac
  shift
done
arguments=("$@")

needs() { # NAME VALUE
  [[ -n $2 ]] || die "$action needs $1"
}

needs --name "$name"
needs --zone "$zone"
number --slices "$slices"
number --poll "$poll"
number --retries "$retries"
number --worker "$worker"
number --lines "$lines"
((slices > 0)) || die "--slices=0 must be at least 1"
[[ -z $spot || -z $reserved ]] || die "--spot and --reserved exclude each other"
[[ $bucket != gs://* ]] || die "--bucket=$bucket: the name alone, without gs://"
case $action in create | resume) needs --accelerator "$accelerator" ;; esac
case $action in run | resume)
  ((${#arguments[@]})) || die "$action needs tupe's arguments: -- pretrain --config=... --workdir=..."
  ;;
esac
workdir=''
if [[ $action == resume ]]; then
  [[ ${arguments[0]} == pretrain ]] || die "${arguments[0]}: resume restarts pretrain only"
  for word in "${arguments[@]}"; do [[ $word != --workdir=* ]] || workdir=${word#*=}; done
  needs --workdir=gs://BUCKET/RUN "$workdir"
fi
case $action in install | resume)
  [[ -n $wheel || -n $git ]] || die "$action needs --wheel or --git"
  [[ -z $wheel || -z $git ]] || die "--wheel and --git exclude each other"
  [[ -z $wheel || -n $dry_run || -f $wheel ]] ||
    die "no file $wheel; pip wheel --no-deps --wheel-dir=dist . makes one"
  ;;
esac

if [[ -n $accelerator && -z $runtime_version ]]; then
  case $accelerator in
    v4-*) runtime_version=tpu-ubuntu2204-base ;;
    v5litepod-*) runtime_version=v2-alpha-tpuv5-lite ;;
    v5p-*) runtime_version=v2-alpha-tpuv5 ;;
    v6e-*) runtime_version=v2-alpha-tpuv6e ;;
    tpu7x*) die "--accelerator=$accelerator: TPU7x is available on GKE only; see launch/gke" ;;
    *) die "--accelerator=$accelerator: v4-*, v5litepod-*, v5p-* or v6e-*; or give --runtime-version" ;;
  esac
fi

location=(--zone="$zone")
[[ -z $project ]] || location+=(--project="$project")

print_command() { # WORDS...: quoted for a shell
  local word line=''
  for word in "$@"; do
    [[ $word =~ ^[[:alnum:]_./:=@,+%-]+$ ]] || word=${word@Q}
    line+=" $word"
  done
  echo "${line:1}"
}

run_or_print() { # COMMAND...: print it with --dry-run
  if [[ -n $dry_run ]]; then print_command "$@"; else "$@"; fi
}

tpus() { run_or_print gcloud compute tpus queued-resources "$@"; }

on_all_workers() { # SHELL COMMAND
  tpus ssh "$name" "${location[@]}" --node=all --worker=all --batch-size=all --command="$1"
}

create() {
  local options=(--accelerator-type="$accelerator" --runtime-version="$runtime_version")
  if ((slices > 1)); then
    options+=(--node-count="$slices" --node-prefix="$name")
  else
    options+=(--node-id="$name")
  fi
  [[ -z $spot ]] || options+=(--spot)
  [[ -z $reserved ]] || options+=(--reserved)
  options+=(--scopes=https://www.googleapis.com/auth/cloud-platform) # IAM decides, not the scope
  [[ -z $service_account ]] || options+=(--service-account="$service_account")
  tpus create "$name" "${location[@]}" "${options[@]}"
}

on_worker() { # WORDS...: the command line for launch/tpu_worker.sh, quoted for the worker's shell
  printf 'bash tpu_worker.sh'
  printf ' %q' "$@"
}

mounts() { [[ -z $bucket ]] || echo "--bucket=$bucket"; }

install() {
  # The constraints pin every version: workers that are installed weeks apart must not differ.
  local files=("$launch/tpu_worker.sh" "$launch/../constraints.txt") package=$git
  if [[ -n $wheel ]]; then
    files+=("$wheel")
    package=${wheel##*/}
  fi
  tpus scp "${files[@]}" "$name:" "${location[@]}" --node=all --worker=all --batch-size=all || return
  # shellcheck disable=SC2046 # no word or one
  on_all_workers "$(on_worker install --package="$package" $(mounts))"
}

run() {
  # shellcheck disable=SC2046
  on_all_workers "$(on_worker run --token="$token" $(mounts) -- "${arguments[@]}")"
}

check_progress() { # on one worker, because the work directory may not be accessible from here
  tpus ssh "$name" "${location[@]}" --node=0 --worker=0 --command="$(
    on_worker check-progress --token="$token" --retries="$retries" --workdir="$workdir"
  )"
}

worker_count() {
  local node workers sum=0 nodes=("$name")
  ((slices == 1)) || mapfile -t nodes < <(seq -f "$name-%g" 0 $((slices - 1)))
  for node in "${nodes[@]}"; do
    workers=$(gcloud compute tpus tpu-vm describe "$node" "${location[@]}" \
      --format='value(networkEndpoints.len())') || return
    ((sum += workers))
  done
  echo "$sum"
}

queued_state() { # also ABSENT, and UNKNOWN where gcloud failed for another reason
  local answer errors
  errors=$(mktemp)
  if answer=$(gcloud compute tpus queued-resources describe "$name" "${location[@]}" \
    --format='value(state.state)' 2>"$errors"); then
    echo "$answer" # without gcloud's warnings, such as about an old Python
  elif grep -q 'NOT_FOUND\|not found' "$errors"; then
    echo ABSENT
  else
    cat "$errors" >&2
    echo UNKNOWN
  fi
  rm -f "$errors"
}

# A new worker has no tpu_worker.sh yet.
state_command='bash tpu_worker.sh state 2>/dev/null || echo run: absent'

run_states() { # one line per worker: absent, running, finished, stopped 75 or failed CODE
  local answer states workers
  workers=$(worker_count 2>/dev/null) || return
  answer=$(on_all_workers "$state_command" 2>/dev/null) || return
  states=$(grep -o 'run: [a-z]*\( [0-9]*\)\?' <<<"$answer" | cut -d' ' -f2-)
  # gcloud succeeds if some of the workers answer.
  if (($(wc -l <<<"$states") != workers)); then
    log "$(wc -l <<<"$states") of $workers workers answered"
    return 1
  fi
  echo "$states"
}

log() { echo "$(date -u +%FT%TZ) $name: $*" >&2; }

delete() { tpus delete "$name" "${location[@]}" --force --quiet; }

patience=600 # seconds
failures=0   # of gcloud, in a row
fail() { # CODE MESSAGE...: count the failure; too many end the script
  ((++failures <= retries)) || { log "${*:2}; giving up" && exit "$1"; }
  log "${*:2}; trying again ($failures of $retries)"
}

request() {
  log "requesting $slices x $accelerator"
  create || fail $? "gcloud could not create the slice"
}

unknown=0 # checks of the progress that failed, in a row
start() {
  local answer
  mixed=0
  answer=$(check_progress) || true # gcloud's exit code may be its own
  case $answer in
    *'start: allowed'*)
      unknown=0
      run || fail 1 "could not start the run"
      ;;
    *'start: refused'*) log "giving up; the slice still costs, see also launch/tpu_vm.sh logs" && exit 2 ;;
    *'start: unknown'*)
      ((++unknown <= 10)) || { log "progress unknown 10 times; giving up; the slice still costs" && exit 1; }
      log "progress unknown; trying again"
      ;;
    *) fail 1 "worker 0 is out of reach" ;;
  esac
}

check_run() { # returns 1 when it is finished
  local states
  if ! states=$(run_states); then
    # Never delete a slice that may be training: the local network may be down.
    ((++unreachable <= 10)) || die "workers out of reach 10 times in a row; the slice still costs"
    log "workers out of reach"
    return
  fi
  unreachable=0
  if grep -q absent <<<"$states"; then
    log "installing and starting"
    if install; then start; else fail 1 "could not install the package"; fi
  elif grep -q running <<<"$states"; then
    failures=0
    grep -qv running <<<"$states" || { mixed=0 && return; }
    # When the run has ended on one worker, the others end soon, unless a process cannot end.
    ((++mixed * poll > patience)) || return 0
    log "the run has ended on some workers only: $(sort <<<"$states" | uniq -c | xargs); restarting"
    start
  elif grep -qx 'failed 2' <<<"$states"; then
    log "tupe refused its arguments; see launch/tpu_vm.sh logs" && exit 2
  elif grep -q 'failed\|stopped' <<<"$states"; then
    log "the run ended: $(sort <<<"$states" | uniq -c | xargs); restarting"
    start
  else
    return 1
  fi
}

resume() {
  local state
  unreachable=0 mixed=0 # polls in a row
  while true; do
    state=$(queued_state)
    case $state in
      ABSENT) request ;;
      SUSPENDED)
        log "preempted"
        mixed=0
        delete && request
        ;;
      FAILED)
        fail 1 "the request failed"
        delete && request
        ;;
      ACTIVE)
        check_run || { log "finished; launch/tpu_vm.sh delete ends the charges" && return; }
        ;;
      *) log "$state" ;;
    esac
    sleep "$poll"
  done
}

# The processes of a run recognize each other by it, and restarts without progress are counted by it.
token=TOKEN
[[ -n $dry_run ]] || token=$(od -An -N8 -tx8 /dev/urandom | tr -d ' ')
launch=$(dirname "${BASH_SOURCE[0]}")
if [[ $action == resume && -n $dry_run ]]; then
  echo "# every $poll s; after a preemption (SUSPENDED) both, without a slice the second:"
  delete
  create
  echo "# if the slice is ACTIVE and a worker has no run:"
  install
  echo "# then, and after any exit code except 0 and 2:"
  check_progress
  run
  exit
fi
case $action in
  create) create ;;
  install) install ;;
  run) run ;;
  status)
    tpus describe "$name" "${location[@]}" --format='value(state.state)'
    on_all_workers "$state_command"
    ;;
  logs)
    tpus ssh "$name" "${location[@]}" --worker="$worker" \
      --command="$(on_worker logs --lines="$lines")"
    ;;
  stop) on_all_workers "$(on_worker stop)" ;;
  resume) resume ;;
  delete) delete ;;
esac
