package framework

import (
	"context"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	crconfig "sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"sigs.k8s.io/kueue/test/berthsuite"
)

// StartManager starts Berth's controller with the settings that the setup gives to Kueue's manager, which is
// built for that and not started. Options replace the manager's own client and cache: they have no effect.
func (f *Framework) StartManager(ctx context.Context, cfg *rest.Config, setup ManagerSetup, _ ...ManagerOption) {
	ginkgo.By("starting Berth's controller", func() {
		skip := true
		kueue, err := ctrl.NewManager(cfg, manager.Options{
			Scheme:     f.scheme,
			Metrics:    metricsserver.Options{BindAddress: "0"},
			Controller: crconfig.Controller{SkipNameValidation: &skip},
		})
		gomega.ExpectWithOffset(1, err).NotTo(gomega.HaveOccurred())
		built, cancel := context.WithCancel(ctx)
		f.managerCancel = cancel
		setup(built, kueue)
		gomega.ExpectWithOffset(1, berthsuite.Start(f.testEnv, f.scheme)).To(gomega.Succeed())
	})
}

// StopManager ends the controller and waits until it has ended.
func (f *Framework) StopManager(context.Context) {
	ginkgo.By("stopping Berth's controller", func() {
		if f.managerCancel != nil {
			f.managerCancel()
		}
		berthsuite.Stop()
	})
}
