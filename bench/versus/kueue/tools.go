//go:build tools

// Package kueue pins the Kueue that Berth is measured beside, and its performance runner.
// `python -m bench.versus` builds both into the cache that the tests use, too.
package kueue

import (
	_ "sigs.k8s.io/kueue/test/performance/scheduler/minimalkueue"
	_ "sigs.k8s.io/kueue/test/performance/scheduler/runner"
)
