#!/usr/bin/env bash
#
# Several processes of one `tupe` command on this machine, on its CPU: how a pod behaves, without one.
#
#   launch/local.sh --processes=4 -- pretrain --config=quickstart --workdir=runs/x
#
# Each process gets --coordinator=localhost:PORT --processes=N --process=i. Its lines are shown with
# [i] before them. Ctrl-C and SIGTERM go to all of them: they save and exit with code 75. When one
# fails, the others are asked to stop, after a grace period killed, and its exit code is returned.
#
#   --processes=N    how many (default 2)
#   --devices=N      CPU devices of each process (default 1)
#   --port=N         of the coordinator (default: a free one)
#   --logs=DIR       also keep each process's output, in DIR/process-i.log
#   --grace=SECONDS  from being asked to stop to being killed (default 60)
#   --dry-run        print the commands and start nothing
#   --help
#
# On a machine with GPUs one process drives them all: `tupe pretrain` alone is right there.
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

environment=(JAX_PLATFORMS=cpu JAX_NUM_CPU_DEVICES="$devices")
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

command -v tupe >/dev/null || die "there is no command tupe; pip install -e . makes it"
[[ -z $logs ]] || mkdir -p "$logs"

show() { # PROCESS: standard input with a prefix, and to the process's own log
  local line log=/dev/null
  [[ -z $logs ]] || log=$logs/process-$1.log
  while IFS= read -r line || [[ -n $line ]]; do
    printf '[%d] %s\n' "$1" "$line"
    printf '%s\n' "$line" >&3
  done 3>"$log"
}

running=()     # process ids of those that have not ended
shows=()       # process ids of their `show`
deadline=''    # for those that have been asked to stop, in SECONDS
exit_code=0    # of the first that failed

stop_all() {
  [[ -z $deadline ]] || return 0
  deadline=$((SECONDS + grace))
  # To each process, not to its group: the children of a data reader must not die before it saves.
  ((${#running[@]} == 0)) || kill -TERM "${running[@]}" 2>/dev/null || true
}

trap stop_all TERM INT
for ((i = 0; i < processes; i++)); do
  [[ -z $deadline ]] || break # asked to stop already: a process started now would not hear of it
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

# Looking around five times a second, because `wait -n` loses processes that end together.
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
    echo "launch/local.sh: killing what has not stopped after $grace s" >&2
    # Here the whole groups, so that no child is left behind.
    for pid in "${running[@]}"; do kill -KILL -- "-$pid" 2>/dev/null || true; done
    deadline=$((SECONDS + grace))
  fi
done
wait "${shows[@]}" 2>/dev/null || true
exit "$exit_code"
