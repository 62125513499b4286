package metrics

import (
	"maps"

	"github.com/prometheus/client_golang/prometheus"

	"sigs.k8s.io/kueue/test/berthsuite"
)

// CollectFilteredGaugeVec returns the series that the controller serves of a metric of Kueue's registry and that
// have these labels.
func CollectFilteredGaugeVec(wanted prometheus.Collector, labels map[string]string) []MetricDataPoint {
	points := []MetricDataPoint{}
	name, err := berthsuite.NameOf(wanted)
	if err != nil {
		return points
	}
	samples, err := berthsuite.Samples(name)
	if err != nil {
		return points
	}
	for _, sample := range samples {
		merged := maps.Clone(sample.Labels)
		maps.Copy(merged, labels)
		if maps.Equal(merged, sample.Labels) {
			value := sample.Metric.GetGauge().GetValue() + sample.Metric.GetCounter().GetValue()
			points = append(points, MetricDataPoint{Labels: sample.Labels, Value: value})
		}
	}
	return points
}
