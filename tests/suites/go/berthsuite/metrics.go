package berthsuite

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// Suites run one replica without leader election, which is a leader to Berth.
const roleLabel, leader, standalone = "replica_role", "leader", "standalone"

var fullName = regexp.MustCompile(`fqName: "([^"]*)"`)

// Sample is one series as the controller serves it now.
type Sample struct {
	Labels map[string]string
	Metric *dto.Metric
}

// Samples returns all series of a metric that the controller serves, without those of a reset metric.
func Samples(name string) ([]Sample, error) {
	if err := settle(); err != nil {
		return nil, err
	}
	running.Lock()
	one := started
	running.Unlock()
	if one == nil {
		return nil, nil
	}
	response, err := http.Get(strings.TrimSuffix(one.metrics, "/") + "/metrics")
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(string(text)))
	if err != nil {
		return nil, err
	}
	var samples []Sample
	for _, metric := range families[name].GetMetric() {
		labels := labelsOf(metric)
		if labels[roleLabel] == leader {
			labels[roleLabel] = standalone
		}
		samples = append(samples, Sample{Labels: labels, Metric: metric})
	}
	return samples, nil
}

// Served returns the series that stands for a metric of Kueue's registry; an empty one if it is not served.
func Served(wanted prometheus.Metric) (*dto.Metric, error) {
	var own dto.Metric
	if err := wanted.Write(&own); err != nil {
		return nil, err
	}
	name, err := nameOf(wanted.Desc())
	if err != nil {
		return nil, err
	}
	samples, err := Samples(name)
	if err != nil {
		return nil, err
	}
	labels := labelsOf(&own)
	index := slices.IndexFunc(samples, func(s Sample) bool { return maps.Equal(s.Labels, labels) })
	if index < 0 {
		return &dto.Metric{}, nil
	}
	return samples[index].Metric, nil
}

// NameOf returns the name of the metric that a collector collects.
func NameOf(collector prometheus.Collector) (string, error) {
	descriptions := make(chan *prometheus.Desc, 1)
	go func() {
		collector.Describe(descriptions)
		close(descriptions)
	}()
	return nameOf(<-descriptions)
}

var (
	resetting sync.Mutex
	// Values of counters when they were reset, by name and labels.
	resets = map[string]float64{}
)

// Reset makes a counter count from now on: what another process serves cannot be set to 0.
func Reset(counter *prometheus.CounterVec) {
	name, err := NameOf(counter)
	if err != nil {
		panic(err)
	}
	samples, err := Samples(name)
	if err != nil {
		panic(err)
	}
	resetting.Lock()
	defer resetting.Unlock()
	// Values of an earlier controller, too: another counts from 0, and may serve no series yet.
	maps.DeleteFunc(resets, func(series string, _ float64) bool { return strings.HasPrefix(series, name+"map[") })
	for _, sample := range samples {
		resets[seriesOf(name, sample.Labels)] = sample.Metric.GetCounter().GetValue()
	}
}

// Counted returns the value of a counter since it was reset.
func Counted(wanted prometheus.Metric) (float64, error) {
	served, err := Served(wanted)
	if err != nil {
		return 0, err
	}
	var own dto.Metric
	if err := wanted.Write(&own); err != nil {
		return 0, err
	}
	name, err := nameOf(wanted.Desc())
	if err != nil {
		return 0, err
	}
	resetting.Lock()
	defer resetting.Unlock()
	value, base := served.GetCounter().GetValue(), resets[seriesOf(name, labelsOf(&own))]
	if value < base { // Another controller counts from 0.
		base = 0
	}
	return value - base, nil
}

func seriesOf(name string, labels map[string]string) string {
	return fmt.Sprintf("%s%v", name, labels)
}

func nameOf(description *prometheus.Desc) (string, error) {
	found := fullName.FindStringSubmatch(description.String())
	if found == nil {
		return "", fmt.Errorf("no name in %s", description)
	}
	return found[1], nil
}

func labelsOf(metric *dto.Metric) map[string]string {
	labels := map[string]string{}
	for _, label := range metric.GetLabel() {
		labels[label.GetName()] = label.GetValue()
	}
	return labels
}
