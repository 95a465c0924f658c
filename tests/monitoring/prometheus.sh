#!/usr/bin/env bash
# Unpack Debian's Prometheus into the user's cache, and print the folder with prometheus and promtool.
#
#   prometheus.sh            unpack it if it is missing: the package is not installed, no service starts
#   prometheus.sh --where    print the folder, and unpack nothing
set -euo pipefail

cache=${POLICYD_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/policyd}/prometheus
bin=$cache/usr/bin
if [[ ${1:-} != --where && ! -x $bin/prometheus ]]; then
  if [[ -x /usr/bin/prometheus && -x /usr/bin/promtool ]]; then
    mkdir -p "$bin"
    ln -sf /usr/bin/prometheus /usr/bin/promtool "$bin/"
  else
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    if [[ $(id -u) == 0 ]]; then apt-get update -qq >&2; fi
    (cd "$work" && apt-get -qq -o APT::Sandbox::User=root download prometheus >&2)
    mkdir -p "$cache"
    dpkg -x "$work"/prometheus_*.deb "$cache"
  fi
fi
echo "$bin"
