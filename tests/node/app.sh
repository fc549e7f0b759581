#!/bin/sh
# `app NAME SECONDS CODE` waits for SIGTERM or SIGQUIT, runs for SECONDS more, and exits with CODE. `app NAME SECONDS -`
# handles no signal. `app NAME SECONDS hook` sleeps. Each appends its events to /log/NAME, with the uptime of the machine.
log() {
  read -r now _ </proc/uptime
  echo "$now $1" >>"/log/$name"
}
run() {
  log runs
  sleep 0.2
}
stop() {
  log "$1"
  end=$((${now%.*} * 100 + 1${now#*.} - 100 + seconds * 100)) # in 1/100 s; the 1 keeps 08 from being octal
  while run && [ $((${now%.*} * 100 + 1${now#*.} - 100)) -lt "$end" ]; do :; done
  exit "$code"
}
name=$1 seconds=$2 code=$3
case $code in
hook)
  log preStop
  exec sleep "$seconds"
  ;;
-) while run; do :; done ;;
esac
for signal in TERM QUIT; do
  trap "stop SIG$signal" "$signal"
done
log started
while :; do
  sleep 3600 &
  wait $!
done
