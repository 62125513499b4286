#!/bin/sh
# Install Berth into the cluster of kubectl's present context, or update it. It can be run again at any time.
#
#   deploy/install.sh [--image NAME:TAG] [--no-wait]
#
# --image    what the controllers run, if the nodes do not have the image that the manifests name
# --no-wait  return when the objects are stored, and not when Redis and a controller are ready
set -eu

namespace=berth-system
image=
wait=yes
while [ $# -gt 0 ]; do
  case $1 in
    --image)
      [ $# -ge 2 ] || { echo "$0: --image needs a name, such as registry.example.com/berth-queue:0.1.0" >&2; exit 2; }
      image=$2
      shift
      ;;
    --no-wait) wait=no ;;
    *) echo "$0: unknown argument $1; expected --image NAME:TAG or --no-wait" >&2; exit 2 ;;
  esac
  shift
done

cd "$(dirname "$0")"
kubectl apply -k .
# Made once and kept: with another key, no stored value would be accepted any more.
if ! kubectl -n "$namespace" get secret berth-redis >/dev/null 2>&1; then
  # Each by itself: within an argument, a failure would be an empty password that is kept.
  password=$(openssl rand -hex 32)
  signing_key=$(openssl rand -hex 32)
  kubectl -n "$namespace" create secret generic berth-redis \
    --from-literal=password="$password" --from-literal=signing-key="$signing_key"
fi
# The certificate of Redis, signed by itself: the controllers check it with ca.crt. A Secret that cert-manager or
# you have made under this name is kept.
if ! kubectl -n "$namespace" get secret berth-redis-tls >/dev/null 2>&1; then
  umask 077
  made=$(mktemp -d)
  trap 'rm -rf "$made"' EXIT
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 3650 -subj /CN=berth-redis \
    -addext "subjectAltName=DNS:berth-redis,DNS:berth-redis.$namespace.svc" \
    -addext keyUsage=critical,digitalSignature,keyCertSign \
    -keyout "$made/tls.key" -out "$made/tls.crt" 2>"$made/said" || { cat "$made/said" >&2; exit 1; }
  kubectl -n "$namespace" create secret generic berth-redis-tls --from-file="$made/tls.crt" \
    --from-file="$made/tls.key" --from-file=ca.crt="$made/tls.crt"
fi
if [ -n "$image" ]; then
  kubectl -n "$namespace" set image deployment/berth-controller "controller=$image"
fi
[ "$wait" = yes ] || exit 0
kubectl -n "$namespace" rollout status statefulset/berth-redis --timeout=5m
kubectl -n "$namespace" rollout status deployment/berth-controller --timeout=5m
