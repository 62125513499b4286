// Package berthsuite runs Berth's controller in place of Kueue's manager in Kueue's integration suites.
//
// A suite's manager setup builds Kueue's controllers from Go values. The setup still runs, but its manager is
// never started: the functions that receive these values record them here, and they become Kueue's
// configuration file, which the controller reads.
package berthsuite

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"
	utilfeature "k8s.io/apiserver/pkg/util/feature"

	config "sigs.k8s.io/kueue/apis/config/v1beta2"
)

// setting is what the manager setups have given since the last manager was started.
type setting struct {
	configuration *config.Configuration
	changes       []func(*config.Configuration)
	frameworks    []string
	schedules     bool
	reconciles    bool
	ownsPodsReady bool
	forceful      bool
}

var (
	recording sync.Mutex
	current   setting
)

func record(change func(*setting)) {
	recording.Lock()
	defer recording.Unlock()
	change(&current)
}

// Given records the configuration that a suite gives to the core controllers.
func Given(c *config.Configuration) {
	record(func(s *setting) { s.configuration = c.DeepCopy() })
}

// Changed records an option that a suite gives to a single component instead.
func Changed(change func(*config.Configuration)) {
	record(func(s *setting) { s.changes = append(s.changes, change) })
}

// Resources is Changed for the section of the resources.
func Resources(change func(*config.Resources)) {
	Changed(func(c *config.Configuration) {
		if c.Resources == nil {
			c.Resources = &config.Resources{}
		}
		change(c.Resources)
	})
}

// Annotations records which annotations a Workload copies: in the file, those of the custom labels of metrics.
func Annotations(keys []string) {
	Changed(func(c *config.Configuration) {
		kind := config.SourceKindWorkload
		for i, key := range keys {
			if slices.ContainsFunc(c.Metrics.CustomLabels, func(l config.ControllerMetricsCustomLabel) bool {
				return l.SourceAnnotationKey == key
			}) {
				continue
			}
			c.Metrics.CustomLabels = append(c.Metrics.CustomLabels, config.ControllerMetricsCustomLabel{
				Name: fmt.Sprintf("copied%d", i), SourceAnnotationKey: key, SourceKind: &kind,
				TrackedValues: []string{"tracked"},
			})
		}
	})
}

// Selected records the selector of namespaces whose jobs are managed.
func Selected(selector labels.Selector) {
	if selector == nil {
		return
	}
	operators := map[selection.Operator]metav1.LabelSelectorOperator{
		selection.In: metav1.LabelSelectorOpIn, selection.Equals: metav1.LabelSelectorOpIn,
		selection.DoubleEquals: metav1.LabelSelectorOpIn,
		selection.NotIn:        metav1.LabelSelectorOpNotIn, selection.NotEquals: metav1.LabelSelectorOpNotIn,
		selection.Exists: metav1.LabelSelectorOpExists, selection.DoesNotExist: metav1.LabelSelectorOpDoesNotExist,
	}
	var parsed metav1.LabelSelector
	requirements, _ := selector.Requirements()
	for _, requirement := range requirements {
		parsed.MatchExpressions = append(parsed.MatchExpressions, metav1.LabelSelectorRequirement{
			Key: requirement.Key(), Operator: operators[requirement.Operator()], Values: requirement.ValuesUnsorted(),
		})
	}
	Changed(func(c *config.Configuration) { c.ManagedJobsNamespaceSelector = &parsed })
}

// Framework records a kind of job that a suite reconciles. Some setups give it to several reconcilers.
func Framework(name string) {
	record(func(s *setting) {
		if !slices.Contains(s.frameworks, name) {
			s.frameworks = append(s.frameworks, name)
		}
	})
}

// FrameworkOf records the kind of job of a reconciler or webhook, and returns the name of its framework.
func FrameworkOf(kind schema.GroupVersionKind) string {
	name := kind.Group + "/" + strings.ToLower(kind.Kind)
	Framework(name)
	return name
}

// EnabledFrameworks records the kinds of jobs that a suite enables by name, with their reconcilers.
func EnabledFrameworks(names []string) {
	for _, name := range names {
		Reconciles(name)
	}
}

// Reconciles records a kind of job that has a reconciler, and not its webhook alone.
func Reconciles(name string) {
	Framework(name)
	record(func(s *setting) { s.reconciles = true })
}

// PodsReady records that the reconcilers of jobs report whether pods are ready.
func PodsReady(wait *config.WaitForPodsReady) {
	record(func(s *setting) { s.ownsPodsReady = wait != nil })
}

// DeletesForcefully records that a suite deletes stuck pods on unreachable nodes, without the minute's delay.
func DeletesForcefully() {
	record(func(s *setting) { s.forceful = true })
}

// Schedules records that a suite starts the scheduler. Without one, nothing is admitted.
func Schedules() {
	record(func(s *setting) { s.schedules = true })
}

// take returns what was recorded as one configuration, and begins the next record. Without are the variables of the
// parts of the controller that the suite leaves out.
func take(scheme *runtime.Scheme) (configuration *config.Configuration, without []string) {
	recording.Lock()
	defer recording.Unlock()
	taken := current
	current = setting{}
	configuration = taken.configuration
	if configuration == nil {
		without = append(without, coreVariable)
		configuration = &config.Configuration{}
	}
	if !taken.schedules {
		without = append(without, unscheduledVariable)
	}
	scheme.Default(configuration)
	// The defaults switch it on, also in suites whose reconcilers of jobs do not report it.
	defaults := &config.Configuration{}
	scheme.Default(defaults)
	timesPodsReady := !equality.Semantic.DeepEqual(configuration.WaitForPodsReady, defaults.WaitForPodsReady)
	if configuration.FeatureGates == nil {
		configuration.FeatureGates = map[string]bool{}
	}
	if taken.forceful {
		without = append(without, delayVariable)
		configuration.FeatureGates["FailureRecoveryPolicy"] = true
	}
	for _, change := range taken.changes {
		change(configuration)
	}
	if len(taken.frameworks) > 0 {
		configuration.Integrations.Frameworks = taken.frameworks
		if !taken.reconciles {
			without = append(without, jobsVariable)
		}
		if !taken.ownsPodsReady && !timesPodsReady {
			configuration.FeatureGates["DisableWaitForPodsReady"] = true
		}
	}
	return configuration, without
}

// Feature gates whose default differs in Berth: they are always written.
var ownDefaults = []string{"UnadmittedWorkloadsObservability"}

// changedGates returns the feature gates that differ from their defaults in Kueue or in Berth.
func changedGates() map[string]bool {
	gates := map[string]bool{}
	for name, spec := range utilfeature.DefaultMutableFeatureGate.GetAll() {
		enabled := utilfeature.DefaultFeatureGate.Enabled(name)
		if enabled != spec.Default || slices.Contains(ownDefaults, string(name)) {
			gates[string(name)] = enabled
		}
	}
	return gates
}

// render returns the configuration file: JSON, which is YAML.
func render(c *config.Configuration, gates map[string]bool) ([]byte, error) {
	c = c.DeepCopy()
	c.TypeMeta = metav1.TypeMeta{APIVersion: config.SchemeGroupVersion.String(), Kind: "Configuration"}
	if c.FeatureGates == nil {
		c.FeatureGates = map[string]bool{}
	}
	for name, enabled := range gates {
		c.FeatureGates[name] = enabled
	}
	text, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	return append(text, "\n---\n"+lease...), nil
}

// No other replica wants the lease, and a machine that halts for seconds must not end the term.
const lease = `{"apiVersion": "berth.dev/v1alpha1", "kind": "ControllerConfig",
 "lease": {"durationSeconds": 120, "renewSeconds": 1, "deadlineSeconds": 100}}
`
