#!/usr/bin/env bash
#
# The part of launch/tpu_vm.sh that runs on each worker of a TPU slice, where it is copied.
#
#   tpu_worker.sh install --package=WHEEL|URL@REVISION [--bucket=NAME]
#   tpu_worker.sh check-progress --workdir=DIR --token=TOKEN --retries=N
#                                     prints: start: allowed, refused, unknown
#   tpu_worker.sh run --token=TOKEN [--bucket=NAME] -- ARGUMENTS OF TUPE
#   tpu_worker.sh state               prints: run: absent, running, finished, stopped 75, failed CODE
#   tpu_worker.sh logs [--lines=N]
#   tpu_worker.sh stop
#
# The run is a systemd unit: it outlives the ssh session, its state and exit code can be queried, and
# on preemption it gets SIGTERM while the network and the bucket are still available.
set -euo pipefail

unit=tupe
environment=$HOME/tupe
gcsfuse_version=3.11.2

action=${1:?no command}
shift
package='' bucket='' token='' retries='' workdir='' lines=50
while (($#)); do
  case $1 in
    --package=*) package=${1#*=} ;;
    --bucket=*) bucket=${1#*=} ;;
    --token=*) token=${1#*=} ;;
    --retries=*) retries=${1#*=} ;;
    --workdir=*) workdir=${1#*=} ;;
    --lines=*) lines=${1#*=} ;;
    --) shift && break ;;
    *) echo "tpu_worker.sh: unknown argument $1" >&2 && exit 2 ;;
  esac
  shift
done

install_package() {
  local requirement="tupe_jax[tpu,gcs] @ git+$package"
  [[ $package != *.whl ]] || requirement="tupe_jax[tpu,gcs] @ file://$HOME/$package"
  export PATH=$HOME/.local/bin:$PATH
  # The Python of the images is too old; uv installs a newer one.
  command -v uv >/dev/null || curl -LsSf https://astral.sh/uv/install.sh | sh
  uv venv --quiet --clear --python=3.12 "$environment"
  uv pip install --quiet --python="$environment/bin/python" --constraints="$HOME/constraints.txt" \
    "$requirement"
}

install_gcsfuse() {
  local key=/usr/share/keyrings/cloud.google.asc site=https://packages.cloud.google.com/apt
  curl -fsSL $site/doc/apt-key.gpg | sudo tee $key >/dev/null
  echo "deb [signed-by=$key] $site gcsfuse-$(lsb_release -cs) main" |
    sudo tee /etc/apt/sources.list.d/gcsfuse.list >/dev/null
  # Wait for the automatic updates of a new machine.
  sudo apt-get -qq -o DPkg::Lock::Timeout=600 update
  sudo apt-get -qq -o DPkg::Lock::Timeout=600 install -y "gcsfuse=$gcsfuse_version"
}

mount_bucket() {
  local folder=/mnt/$bucket cache=/var/cache/gcsfuse options
  options=rw,_netdev,allow_other,implicit_dirs,uid=$(id -u),gid=$(id -g)
  # Streaming writes would leave metrics.jsonl unfinished until it is closed.
  options+=,enable_streaming_writes=false
  # On TPU machines gcsfuse keeps metadata forever: a worker would not see what another one wrote.
  options+=,metadata_cache_ttl_secs=60,metadata_cache_negative_ttl_secs=0
  # Prepared data is read from the local disk after the first epoch.
  options+=,cache_dir=$cache,file_cache_max_size_mb=51200,file_cache_cache_file_for_range_read
  sudo mkdir -p $cache
  command -v gcsfuse >/dev/null || install_gcsfuse
  # In fstab, so that systemd stops the run before it unmounts the bucket.
  grep -q " $folder " /etc/fstab ||
    echo "$bucket $folder gcsfuse $options 0 0" | sudo tee -a /etc/fstab >/dev/null
  sudo mkdir -p "$folder"
  sudo systemctl daemon-reload
  mountpoint -q "$folder" || sudo mount "$folder"
}

stop_run() {
  sudo systemctl stop $unit 2>/dev/null || true
}

case $action in
  install)
    stop_run
    install_package
    [[ -z $bucket ]] || mount_bucket
    ;;
  check-progress)
    code=0
    "$environment/bin/tupe" check-progress "$workdir" --job="$token" --retries="$retries" || code=$?
    case $code in
      0) echo "start: allowed" ;;
      2) echo "start: refused" ;;
      *) echo "start: unknown" ;; # the check itself failed
    esac
    ;;
  run)
    stop_run
    sudo systemctl reset-failed $unit 2>/dev/null || true
    options=(
      --unit="$unit" --uid="$(id -u)" --gid="$(id -g)" --working-directory="$HOME"
      --setenv=TUPE_TOKEN="$token"
      --remain-after-exit                # keep the state of a finished run
      --property=KillMode=mixed          # SIGTERM to tupe only, not to its data readers
      --property=TimeoutStopSec=120      # time to save
      --property=LimitMEMLOCK=infinity   # libtpu pins memory
      --property=LimitNOFILE=1048576
    )
    [[ -z $bucket ]] || options+=(--property=RequiresMountsFor="/mnt/$bucket")
    sudo systemd-run --quiet "${options[@]}" "$environment/bin/tupe" "$@"
    ;;
  state)
    loaded='' sub='' code=0 kind=''
    while IFS='=' read -r key value; do
      case $key in
        LoadState) loaded=$value ;;
        SubState) sub=$value ;;
        ExecMainStatus) code=$value ;;
        ExecMainCode) kind=$value ;;
      esac
    done < <(systemctl show $unit --property=LoadState,SubState,ExecMainCode,ExecMainStatus)
    # Killed (2) or dumped core (3): the status is the number of the signal.
    [[ $kind != [23] ]] || code=$((128 + code))
    case $loaded/$sub/$code in
      not-found/*) echo "run: absent" ;;
      */exited/*) echo "run: finished" ;;
      */failed/75) echo "run: stopped 75" ;;
      */failed/*) echo "run: failed $code" ;;
      *) echo "run: running" ;;
    esac
    ;;
  logs) journalctl --unit=$unit --no-pager --output=cat --lines="$lines" ;;
  stop) stop_run ;;
  *) echo "tpu_worker.sh: no command $action" >&2 && exit 2 ;;
esac
