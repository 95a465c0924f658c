#!/usr/bin/env bash
# Install what the browser tests need and the machine lacks: Chromium, Playwright and axe-core.
#
# As root, Chromium is Debian's package. Other users get the same package unpacked in their cache,
# with the libraries it depends on. Playwright comes from PyPI, and axe-core from npm: the versions
# stand in constraints.txt and in package-lock.json beside this script.
#
# Exits with 0, or with 3 and a sentence on stderr where there is no way to install one of them.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
python=${1:?usage: install.sh PYTHON}
cache=${POLICYD_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/policyd}/browser
mkdir -p "$cache"
log=$cache/install.log

missing() { # SENTENCE
  echo "browser: $1" >&2
  exit 3
}

quietly() { # COMMAND...: keep its output for the case that it fails
  "$@" >"$log" 2>&1 || { tail -n 5 "$log" >&2; return 1; }
}

install_chromium() {
  if [[ -x $cache/chromium/run ]] || command -v chromium >/dev/null; then return; fi
  command -v apt-get >/dev/null ||
    missing "chromium is not installed, and there is no apt-get to install it with"
  if [[ $(id -u) == 0 ]]; then
    echo "browser: installing Debian's chromium"
    { quietly apt-get update && DEBIAN_FRONTEND=noninteractive quietly apt-get install -y \
      --no-install-recommends chromium; } || missing "apt-get cannot install chromium"
  else
    echo "browser: unpacking Debian's chromium in $cache/chromium"
    unpack_chromium || missing "apt-get cannot download chromium"
  fi
}

unpack_chromium() {
  local state=$cache/apt root=$cache/chromium
  rm -rf "$state" "$root"
  mkdir -p "$state"/{lists,archives}/partial "$root"
  local options=(
    -o "Dir::State::lists=$state/lists" -o "Dir::Cache=$state" -o "Dir::Cache::archives=$state/archives"
    -o Debug::NoLocking=1 -o APT::Sandbox::User=
  )
  quietly apt-get "${options[@]}" update || return 1
  quietly apt-get "${options[@]}" --yes --no-install-recommends --download-only install chromium ||
    return 1
  local package
  for package in "$state"/archives/*.deb; do
    dpkg-deb --extract "$package" "$root" || return 1
  done
  # Packages expect their files under /. This leads the loader and fontconfig to the copies.
  cat >"$root/fonts.conf" <<EOF
<?xml version="1.0"?>
<fontconfig><dir>/usr/share/fonts</dir><dir>$root/usr/share/fonts</dir><cachedir>$root/fonts</cachedir></fontconfig>
EOF
  cat >"$root/run" <<EOF
#!/bin/sh
for folder in "$root"/usr/lib/*-linux-gnu* "$root"/usr/lib "$root"/lib/*-linux-gnu*; do
  LD_LIBRARY_PATH=\${LD_LIBRARY_PATH:+\$LD_LIBRARY_PATH:}\$folder
done
FONTCONFIG_FILE="$root/fonts.conf"
export LD_LIBRARY_PATH FONTCONFIG_FILE
exec "$root/usr/lib/chromium/chromium" "\$@"
EOF
  chmod +x "$root/run"
  rm -rf "$state"
}

install_playwright() {
  if "$python" -c 'import playwright' 2>/dev/null; then return; fi
  echo "browser: installing Playwright"
  quietly "$python" -m pip install --disable-pip-version-check \
    --constraint "$here/../../constraints.txt" playwright || missing "pip cannot install playwright"
}

install_axe() {
  if cmp -s "$here/package-lock.json" "$cache/axe/package-lock.json" &&
    [[ -f $cache/axe/node_modules/axe-core/axe.min.js ]]; then return; fi
  command -v npm >/dev/null || missing "axe-core is not installed, and there is no npm to install it with"
  echo "browser: installing axe-core"
  mkdir -p "$cache/axe"
  cp "$here/package.json" "$here/package-lock.json" "$cache/axe"
  quietly npm ci --prefix "$cache/axe" --include=dev --ignore-scripts --no-audit --no-fund ||
    missing "npm cannot install axe-core"
}

install_chromium
install_playwright
install_axe
