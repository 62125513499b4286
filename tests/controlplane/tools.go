//go:build tools

// Package controlplane pins the real control plane that Berth's tests run against.
// `python -m tests.controlplane` builds it into a cache outside the tree.
package controlplane

import (
	_ "k8s.io/kubernetes/cmd/kube-apiserver"
	_ "k8s.io/kubernetes/cmd/kube-controller-manager"
	_ "k8s.io/kubernetes/cmd/kube-scheduler"
	_ "k8s.io/kubernetes/cmd/kubectl"
)
