#!/bin/sh
# Take Berth away from the cluster of kubectl's present context, with its queues and Workloads. What runs goes on
# running; what waits keeps waiting, and is listed at the end. It can be run again at any time.
#
#   deploy/uninstall.sh [--no-wait]
#
# --no-wait  return when the objects are deleted, and not when they are gone
set -eu

namespace=berth-system
wait=true
while [ $# -gt 0 ]; do
  case $1 in
    --no-wait) wait=false ;;
    *) echo "$0: unknown argument $1; expected --no-wait" >&2; exit 2 ;;
  esac
  shift
done

cd "$(dirname "$0")"
delete() { kubectl delete --ignore-not-found "$@"; }

# Without a controller nothing answers them: no Job could be created, and no namespace deleted.
delete -k webhooks
delete -k visibility
# Before any Workload goes: a controller stops the Job of a Workload that is deleted.
delete --namespace "$namespace" deployment/berth-controller --cascade=foreground --timeout=5m
# They let none but the controller take a finalizer off a pod.
delete -f workload-policies.yaml

# The controller converted v1beta1, and objects that cannot be converted cannot be deleted either.
kubectl get crd --output go-template='{{range .items}}{{if .spec.conversion.webhook -}}
  {{if eq .spec.conversion.webhook.clientConfig.service.namespace "'$namespace'"}}{{.metadata.name}}{{"\n"}}{{end}}
{{- end}}{{end}}' | while read -r definition; do
  kubectl patch crd "$definition" --type merge --patch '{"spec":{"conversion":{"strategy":"None","webhook":null}}}'
done

# Only the controller took these finalizers off, and a definition is deleted once its objects are.
finalize() {
  if [ -n "$(kubectl get "$1" --all-namespaces --output name)" ]; then
    kubectl get "$1" --all-namespaces --output json |
      kubectl patch --filename - --type merge --patch '{"metadata":{"finalizers":null}}'
  fi
}
for kind in workloads clusterqueues resourceflavors topologies admissionchecks; do
  kind=$kind.kueue.x-k8s.io
  kubectl get crd "$kind" >/dev/null 2>&1 || continue
  # An object may go between the list and its patch, such as a Workload with its Job. The others are patched all the same.
  for _ in 1 2 3 4 5 6 7 8 9; do
    finalize "$kind" 2>/dev/null && continue 2
  done
  finalize "$kind"
done

# Of a pod, Berth's alone is taken off.
release() {
  # The policies above are in force for a moment after their deletion.
  for _ in 1 2 3 4 5 6 7 8 9; do
    kubectl patch --namespace "$1" pod "$2" --type merge --patch "$3" 2>/dev/null && return
    kubectl get --namespace "$1" pod "$2" >/dev/null 2>&1 || return 0
    sleep 1
  done
  kubectl patch --namespace "$1" pod "$2" --type merge --patch "$3"
}
kubectl get pods --all-namespaces --selector kueue.x-k8s.io/managed=true --output go-template='{{range .items -}}
  {{if .metadata.finalizers}}{{.metadata.namespace}} {{.metadata.name}} {"metadata":{"finalizers":[
  {{- $comma := ""}}{{range .metadata.finalizers -}}
    {{if ne . "kueue.x-k8s.io/managed"}}{{$comma}}"{{.}}"{{$comma = ","}}{{end}}
  {{- end}}]}}{{"\n"}}{{end}}
{{- end}}' | while read -r room pod patch; do release "$room" "$pod" "$patch"; done

delete -k . --wait="$wait"

echo "These still wait, and nothing starts them now:"
kubectl get jobs --all-namespaces --selector kueue.x-k8s.io/queue-name --output go-template='{{range .items -}}
  {{if .spec.suspend}}job {{.metadata.namespace}}/{{.metadata.name}}{{"\n"}}{{end}}
{{- end}}'
kubectl get pods --all-namespaces --selector kueue.x-k8s.io/managed=true --output go-template='{{range .items -}}
  {{if .spec.schedulingGates}}pod {{.metadata.namespace}}/{{.metadata.name}}{{"\n"}}{{end}}
{{- end}}'
