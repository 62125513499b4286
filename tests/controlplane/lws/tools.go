//go:build tools

// Package lws pins the real LeaderWorkerSet controller that one of Berth's tests runs against, if it is there.
// `python -m tests.controlplane leaderworkerset` builds it into a cache outside the tree.
package lws

import _ "sigs.k8s.io/lws/cmd"
