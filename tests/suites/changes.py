"""What is changed in Kueue's code before its suites are built: a few lines that say what they are given.

Each change names a file, a text that must be there, and what replaces it. A release of Kueue whose code no
longer has the text is refused with the name of the file, so that no suite runs with a setting that is lost.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

GO_FILES = Path(__file__).parent / "go"
# Where our packages go in Kueue's module, by folder of GO_FILES.
PLACES = {
    "berthsuite": "test/berthsuite",
    "testutil": "test/berthsuite/testutil",
    "framework": "test/integration/framework",
    "metrics": "pkg/util/testing/metrics",
}
_IMPORTS = "import (\n"
_OUR_IMPORT = f'{_IMPORTS}\t"sigs.k8s.io/kueue/test/berthsuite"\n'
_SUITES = "test/integration/singlecluster"
_METRIC_READERS = '"k8s.io/component-base/metrics/testutil"'
_OUR_METRIC_READERS = '"sigs.k8s.io/kueue/test/berthsuite/testutil"'
_RESET = "metrics.AdmissionAttemptsTotal.Reset()"
_OUR_RESET = "berthsuite.Reset(metrics.AdmissionAttemptsTotal)"
# The outermost ordered containers, whose first failed case would leave out all that follow.
_ORDERED = re.compile(r"^(var _ = ginkgo\.Describe\((?!.*ContinueOnFailure).*ginkgo\.Ordered,)", re.MULTILINE)
_CONTINUED = r"\1 ginkgo.ContinueOnFailure,"


class ChangeFailed(Exception):
    """Kueue's code is not as expected; the message names the file and the text that it lacks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A text of a file, which is replaced once."""

    path: str
    old: str
    new: str


def _begin(path: str, signature: str, line: str) -> Change:
    """Return the change that makes a function begin with this line."""
    return Change(path=path, old=f"{signature} {{\n", new=f"{signature} {{\n\t{line}\n")


_FRAMEWORK = "test/integration/framework/framework.go"
_QUEUES, _CACHE = "pkg/cache/queue/manager.go", "pkg/cache/scheduler/cache.go"
_SCHEDULER, _JOBS = "pkg/scheduler/scheduler.go", "pkg/controller/jobframework/reconciler.go"
# The webhooks that are set up by a function of their own, by folder, with the kind in the function's name.
_KINDS = "pkg/controller/jobs"
_WEBHOOKS = {
    "deployment": "",
    "job": "",
    "jobset": "JobSet",
    "leaderworkerset": "",
    "mpijob": "MPIJob",
    "pod": "",
    "raycluster": "RayCluster",
    "rayjob": "RayJob",
    "rayservice": "RayService",
    "sparkapplication": "",
    "statefulset": "",
    "trainjob": "TrainJob",
}
_TRANSFORMED = "berthsuite.Resources(func(r *config.Resources) { r.Transformations = transforms })"
_EXCLUDED = "berthsuite.Resources(func(r *config.Resources) { r.ExcludeResourcePrefixes = excludedPrefixes })"

CHANGES = (
    # The framework starts our controller, with our definitions and webhooks.
    Change(path=_FRAMEWORK, old="(f *Framework) StartManager(", new="(f *Framework) startKueue("),
    Change(path=_FRAMEWORK, old="(f *Framework) StopManager(", new="(f *Framework) stopKueue("),
    Change(
        path=_FRAMEWORK,
        old='filepath.Join(util.ProjectBaseDir, "config", "components", "crd", "_output")',
        new="filepath.Clean(berthsuite.Definitions())",
    ),
    Change(path=_FRAMEWORK, old="[]string{f.WebhookPath}", new="[]string{berthsuite.Webhooks()}"),
    # The 10 s of its default are too short for the many definitions on a busy machine.
    Change(
        path=_FRAMEWORK,
        old="\t\t\tErrorIfCRDPathMissing:   true,\n",
        new="\t\t\tErrorIfCRDPathMissing:   true,\n"
        "\t\t\tCRDInstallOptions:       envtest.CRDInstallOptions{MaxTime: 2 * time.Minute},\n",
    ),
    Change(path=_FRAMEWORK, old="client.NewWithWatch(cfg,", new="client.NewWithWatch(berthsuite.Watch(cfg),"),
    _begin(_FRAMEWORK, "func (f *Framework) Teardown()", "berthsuite.Stop()"),
    # What a suite gives to Kueue's parts.
    _begin(
        "pkg/controller/core/core.go",
        "func SetupControllers(mgr ctrl.Manager, qManager *qcache.Manager, cc *schdcache.Cache, "
        "cfg *configapi.Configuration, opts SetupControllersOpts) (string, error)",
        "berthsuite.Given(cfg)",
    ),
    Change(
        path=_SCHEDULER, old="\tgo wait.UntilWithBackoff(ctx, s.schedule)\n", new="\tberthsuite.Schedules()\n"
    ),
    # One suite leaves the start of the scheduler to the manager, which is never started.
    Change(path=f"{_SUITES}/controller/dra/suite_test.go", old="mgr.Add(sched)", new="sched.Start(ctx)"),
    _begin(
        _SCHEDULER,
        "func WithQuotaCheckStrategy(qcs config.QuotaCheckStrategy) Option",
        "berthsuite.Resources(func(r *config.Resources) { r.QuotaCheckStrategy = &qcs })",
    ),
    _begin(
        _QUEUES,
        "func WithResourceTransformations(transforms []config.ResourceTransformation) Option",
        _TRANSFORMED,
    ),
    _begin(
        _CACHE,
        "func WithResourceTransformations(transforms []config.ResourceTransformation) Option",
        _TRANSFORMED,
    ),
    _begin(_QUEUES, "func WithExcludedResourcePrefixes(excludedPrefixes []string) Option", _EXCLUDED),
    _begin(
        _QUEUES,
        "func WithResourceMetrics(enabled bool) Option",
        "berthsuite.Changed(func(c *config.Configuration) "
        "{ c.Metrics.EnableClusterQueueResources = enabled })",
    ),
    _begin(
        _JOBS,
        "func WithManageJobsWithoutQueueName(f bool) Option",
        "berthsuite.Changed(func(c *configapi.Configuration) { c.ManageJobsWithoutQueueName = f })",
    ),
    _begin(
        _JOBS,
        "func WithManagedJobsNamespaceSelector(ls labels.Selector) Option",
        "berthsuite.Selected(ls)",
    ),
    _begin(
        _JOBS,
        "func WithWaitForPodsReady(cfg *configapi.WaitForPodsReady) Option",
        "berthsuite.PodsReady(cfg)",
    ),
    _begin(
        _JOBS,
        "func WithLabelKeysToCopy(s sets.Set[string]) Option",
        "berthsuite.Changed(func(c *configapi.Configuration) "
        "{ c.Integrations.LabelKeysToCopy = sets.List(s) })",
    ),
    _begin(
        _JOBS,
        "func WithAnnotationsToCopy(s sets.Set[string]) Option",
        "berthsuite.Annotations(sets.List(s))",
    ),
    _begin(
        _JOBS,
        "func WithObjectRetentionPolicies(value *configapi.ObjectRetentionPolicies) Option",
        "berthsuite.Changed(func(c *configapi.Configuration) { c.ObjectRetentionPolicies = value })",
    ),
    # One suite names the kinds alone: their webhooks and reconcilers wait for definitions.
    _begin(
        _JOBS,
        "func WithEnabledFrameworks(frameworks []string) Option",
        "berthsuite.EnabledFrameworks(frameworks)",
    ),
    _begin(
        "pkg/controller/failurerecovery/pod_termination_controller.go",
        "func WithForcefulTerminationGracePeriod(t time.Duration) TerminatingPodReconcilerOption",
        "berthsuite.DeletesForcefully()",
    ),
    # Which kinds a suite sets up: their webhooks, and their reconcilers.
    *(
        _begin(
            f"{_KINDS}/{name}/{name}_webhook.go",
            f"func Setup{kind}Webhook(mgr ctrl.Manager, opts ...jobframework.Option) error",
            "berthsuite.Framework(FrameworkName)",
        )
        for name, kind in _WEBHOOKS.items()
    ),
    Change(
        path="pkg/controller/jobframework/base_webhook.go",
        old="\t\toptions := ProcessOptions(opts...)\n",
        new="\t\toptions := ProcessOptions(opts...)\n\t\tberthsuite.FrameworkOf(fromObject(obj).GVK())\n",
    ),
    Change(
        path=_JOBS,
        old="\t\treturn &genericReconciler{\n",
        new="\t\tberthsuite.Reconciles(berthsuite.FrameworkOf(newJob().GVK()))\n"
        "\t\treturn &genericReconciler{\n",
    ),
    _begin(
        f"{_KINDS}/pod/pod_controller.go",
        "func NewReconciler(_ context.Context, c client.Client, _ client.FieldIndexer, "
        "record events.EventRecorder, opts ...jobframework.Option) "
        "(jobframework.JobReconcilerInterface, error)",
        "berthsuite.Reconciles(FrameworkName)",
    ),
    *(
        _begin(
            f"{_KINDS}/{name}/{name}_reconciler.go",
            "func NewReconciler(_ context.Context, client client.Client, _ client.FieldIndexer, "
            "eventRecorder events.EventRecorder, opts ...jobframework.Option) "
            "(jobframework.JobReconcilerInterface, error)",
            "berthsuite.Reconciles(FrameworkName)",
        )
        for name in ("statefulset", "leaderworkerset")
    ),
    _begin(
        "pkg/controller/jobframework/integrationmanager.go",
        "func EnableIntegration(name string)",
        "berthsuite.Framework(name)",
    ),
    # Metrics are read from the controller, not from this process.
    Change(
        path="pkg/util/testing/metrics/metrics.go",
        old="func CollectFilteredGaugeVec(",
        new="func collectOwn(",
    ),
)


def apply(module: Path) -> None:
    """Change the copy of Kueue's module in a folder. Raises ChangeFailed if it is not as expected."""
    for change in CHANGES:
        _replace(module, change)
    for path in dict.fromkeys(change.path for change in CHANGES if "berthsuite." in change.new):
        _replace(module, Change(path=path, old=_IMPORTS, new=_OUR_IMPORT))
    for file in [*(module / _SUITES).rglob("*_test.go"), *(module / "test" / "util").glob("*.go")]:
        _adapt(file)
    for name, place in PLACES.items():
        (module / place).mkdir(exist_ok=True, parents=True)
        for file in (GO_FILES / name).glob("*.go"):
            (module / place / file.name).write_text(file.read_text())


def go_files() -> list[Path]:
    """Return our Go files, in order."""
    return sorted(GO_FILES.rglob("*.go"))


def _replace(module: Path, change: Change) -> None:
    path = module / change.path
    text = path.read_text() if path.is_file() else ""
    if text.count(change.old) != 1:
        raise ChangeFailed(
            f"{change.path} of this release has {text.count(change.old)} times, not once: {change.old}"
        )
    path.write_text(text.replace(change.old, change.new))


def _adapt(path: Path) -> None:
    """Let a file of the suites read the controller's metrics, and run all cases of each container."""
    text = changed = path.read_text()
    changed = _ORDERED.sub(_CONTINUED, changed)
    changed = changed.replace(_METRIC_READERS, _OUR_METRIC_READERS)
    if _RESET in changed:
        changed = changed.replace(_RESET, _OUR_RESET).replace(_IMPORTS, _OUR_IMPORT, 1)
    if changed != text:
        path.write_text(changed)
