#!/usr/bin/env bash
#
# Runs one `tupe` command in several processes on the CPU of this machine, as a rehearsal of a pod.
#
#   launch/local.sh --processes=4 -- pretrain --config=quickstart --workdir=runs/x
#
# Each process gets --coordinator=localhost:PORT --processes=N --process=i. Its output has the prefix
# [i]. Ctrl-C and SIGTERM reach all processes: they save and exit with code 75. When one process
# fails, the others get SIGTERM, are killed after a grace period, and its exit code is returned.
#
#   --processes=N    number of processes (default 2)
#   --devices=N      CPU devices per process (default 1)
#   --port=N         port of the coordinator (default: a free port)
#   --logs=DIR       also write the output of each process to DIR/process-i.log
#   --grace=SECONDS  from SIGTERM to SIGKILL (default 60)
#   --dry-run        print the commands without starting them
#   --help
#
# On a machine with GPUs, use `tupe pretrain` directly: one process drives all GPUs.
set -euo pipefail

die() {
  echo "launch/local.sh: $*" >&2
  exit 2
}

help() { sed -n '3,/^set /{/^set /d;s/^# \{0,1\}//p;}' "${BASH_SOURCE[0]}"; }

print_command() { # WORDS...: as one would type them
  local word line=''
  for word in "$@"; do
    [[ $word =~ ^[[:alnum:]_./:=@,+%-]+$ ]] || word=${word@Q}
    line+=" $word"
  done
  echo "${line:1}"
}

positive() { # NAME VALUE
  [[ $2 =~ ^[1-9][0-9]*$ ]] || die "$1=$2 must be a whole number above 0"
}

processes=2 devices=1 port='' logs='' grace=60 dry_run=''
while (($#)); do
  case $1 in
    --processes=*) processes=${1#*=} ;;
    --devices=*) devices=${1#*=} ;;
    --port=*) port=${1#*=} ;;
    --logs=*) logs=${1#*=} ;;
    --grace=*) grace=${1#*=} ;;
    --dry-run) dry_run=yes ;;
    --help) help && exit ;;
    --) shift && break ;;
    *) die "unknown argument $1; the tupe command comes after --, and --help lists the rest" ;;
  esac
  shift
done
positive --processes "$processes"
positive --devices "$devices"
positive --grace "$grace"
(($#)) || die "no tupe command; for example: launch/local.sh -- pretrain --config=quickstart"
# Since 4.4, $! is also the process id of >(...).
((BASH_VERSINFO[0] * 100 + BASH_VERSINFO[1] >= 404)) || die "needs bash 4.4, this is $BASH_VERSION"

if [[ -z $port && -n $dry_run ]]; then
  port=PORT
elif [[ -z $port ]]; then
  port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("", 0)); print(s.getsockname()[1])')
fi

token=TOKEN # by which the processes of this run recognize each other
[[ -n $dry_run ]] || token=$(od -An -N8 -tx8 /dev/urandom | tr -d ' ')
environment=(JAX_PLATFORMS=cpu JAX_NUM_CPU_DEVICES="$devices" TUPE_TOKEN="$token")
command_of() { # PROCESS, the tupe command...: sets `command`
  local process=$1
  shift
  command=(env "${environment[@]}" tupe "$@"
    --coordinator="localhost:$port" --processes="$processes" --process="$process")
}

if [[ -n $dry_run ]]; then
  for ((i = 0; i < processes; i++)); do
    command_of "$i" "$@"
    print_command "${command[@]}"
  done
  exit
fi

command -v tupe >/dev/null || die "tupe is not installed; run: pip install -e ."
[[ -z $logs ]] || mkdir -p "$logs"

show() { # PROCESS: print standard input with a prefix, and write it to the log
  local line log=/dev/null
  [[ -z $logs ]] || log=$logs/process-$1.log
  while IFS= read -r line || [[ -n $line ]]; do
    printf '[%d] %s\n' "$1" "$line"
    printf '%s\n' "$line" >&3
  done 3>"$log"
}

running=()     # process ids of running processes
shows=()       # process ids of their `show`
deadline=''    # of SIGKILL after SIGTERM, in SECONDS
exit_code=0    # of the first process that failed

stop_all() {
  [[ -z $deadline ]] || return 0
  deadline=$((SECONDS + grace))
  # To each process, not to its group: the children of a data reader must not die before it saves.
  ((${#running[@]} == 0)) || kill -TERM "${running[@]}" 2>/dev/null || true
}

trap stop_all TERM INT
for ((i = 0; i < processes; i++)); do
  [[ -z $deadline ]] || break # a process started after SIGTERM would not get it
  exec {output}> >(trap '' INT TERM && show "$i")
  shows+=("$!")
  command_of "$i" "$@"
  # A group of its own (set -m) keeps the terminal's Ctrl-C from reaching the process twice: a
  # second SIGINT means "at once" to tupe, and nothing would be saved.
  set -m
  "${command[@]}" </dev/null >&"$output" 2>&1 &
  set +m
  running+=("$!")
  exec {output}>&-
done

((${#running[@]})) || exit 75

# Poll five times a second: `wait -n` misses processes that end together.
while ((${#running[@]})); do
  sleep 0.2 || true # the terminal's Ctrl-C ends it, too
  left=()
  for pid in "${running[@]}"; do
    if kill -0 "$pid" 2>/dev/null; then
      left+=("$pid")
      continue
    fi
    code=0
    wait "$pid" 2>/dev/null || code=$?
    ((exit_code != 0)) || exit_code=$code
  done
  running=("${left[@]}")
  ((exit_code == 0)) || stop_all
  if [[ -n $deadline ]] && ((SECONDS >= deadline && ${#running[@]} > 0)); then
    echo "launch/local.sh: killing processes that did not stop within $grace s" >&2
    # The whole groups, so that no child survives.
    for pid in "${running[@]}"; do kill -KILL -- "-$pid" 2>/dev/null || true; done
    deadline=$((SECONDS + grace))
  fi
done
wait "${shows[@]}" 2>/dev/null || true
exit "$exit_code"
