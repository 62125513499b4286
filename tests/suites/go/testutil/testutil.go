// Package testutil reads metrics as the package of the same name of k8s.io/component-base does, but from the
// controller that runs as a child process. A metric of Kueue's registry only says which series is asked for.
package testutil

import (
	"github.com/prometheus/client_golang/prometheus"

	"sigs.k8s.io/kueue/test/berthsuite"
)

// GetGaugeMetricValue returns the value of a gauge, 0 if it is not served.
func GetGaugeMetricValue(wanted any) (float64, error) {
	served, err := berthsuite.Served(wanted.(prometheus.Metric))
	return served.GetGauge().GetValue(), err
}

// GetCounterMetricValue returns the value of a counter, 0 if it is not served.
func GetCounterMetricValue(wanted any) (float64, error) {
	return berthsuite.Counted(wanted.(prometheus.Metric))
}

// GetHistogramMetricCount returns how many values a histogram has observed, 0 if it is not served.
func GetHistogramMetricCount(wanted any) (uint64, error) {
	served, err := berthsuite.Served(wanted.(prometheus.Metric))
	return served.GetHistogram().GetSampleCount(), err
}
