package berthsuite

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	config "sigs.k8s.io/kueue/apis/config/v1beta2"
)

// Names that `python -m tests.suites` sets in the environment.
const (
	commandVariable     = "BERTH_SUITES_COMMAND"       // the controller's arguments as a JSON list
	folderVariable      = "BERTH_SUITES_FOLDER"        // for configuration files and logs
	definitionsVariable = "BERTH_SUITES_DEFINITIONS"   // a folder of CustomResourceDefinitions
	webhooksVariable    = "BERTH_SUITES_WEBHOOKS"      // a folder of webhook configurations
	unscheduledVariable = "BERTH_SUITES_UNSCHEDULED"   // set for a controller that shall admit nothing
	coreVariable        = "BERTH_SUITES_WITHOUT_CORE"  // set for one without the controllers of queues
	jobsVariable        = "BERTH_SUITES_WITHOUT_JOBS"  // set for one with the webhooks of jobs alone
	delayVariable       = "BERTH_SUITES_WITHOUT_DELAY" // set for one that deletes stuck pods at once
)

const (
	// Of a controller on two busy cores.
	readyTimeout = 90 * time.Second
	stopTimeout  = 20 * time.Second
	lookInterval = 20 * time.Millisecond
	// As the webhook configurations name the controller, whose own writes they leave alone.
	account = "system:serviceaccount:berth-system:berth-controller"
)

// controller is a Berth controller as a child process: where it works, and its present life.
type controller struct {
	kubeconfig    string
	configuration *config.Configuration
	without       []string
	webhooks      *envtest.WebhookInstallOptions

	gates   map[string]bool
	process *exec.Cmd
	ended   chan struct{}
	log     string
	metrics string
}

var (
	// running guards the one controller of a suite: at most one manager runs at a time.
	running sync.Mutex
	started *controller
	lives   int
)

// Definitions returns the folder of the CustomResourceDefinitions.
func Definitions() string { return os.Getenv(definitionsVariable) }

// Webhooks returns the folder of the webhook configurations.
func Webhooks() string { return os.Getenv(webhooksVariable) }

// Start starts a controller with what was recorded, and returns when it leads and decides.
func Start(env *envtest.Environment, scheme *kruntime.Scheme) error {
	running.Lock()
	defer running.Unlock()
	if started != nil {
		return errors.New("a controller is running already")
	}
	user, err := env.AddUser(envtest.User{Name: account, Groups: []string{"system:masters"}}, nil)
	if err != nil {
		return err
	}
	lives++
	one := &controller{kubeconfig: inFolder("kubeconfig-%d.json", lives), webhooks: &env.WebhookInstallOptions}
	one.configuration, one.without = take(scheme)
	if err := writeKubeconfig(user.Config(), one.kubeconfig); err != nil {
		return err
	}
	started = one
	return one.start()
}

// Stop ends the controller and waits until it has ended. Without one, nothing happens.
func Stop() {
	running.Lock()
	defer running.Unlock()
	if started != nil {
		started.stop()
		started = nil
	}
}

// settle restarts the controller if feature gates have changed: it reads them from its file only. Called before
// each request of a suite and each look at the metrics, so that several changes cost one restart.
func settle() error {
	running.Lock()
	defer running.Unlock()
	if started == nil || maps.Equal(started.gates, changedGates()) {
		return nil
	}
	started.stop()
	lives++
	return started.start()
}

// Watch makes a client wait until the controller works by the feature gates that the suite has set.
func Watch(cfg *rest.Config) *rest.Config {
	cfg = rest.CopyConfig(cfg)
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return settling{next} })
	return cfg
}

type settling struct{ next http.RoundTripper }

func (s settling) RoundTrip(request *http.Request) (*http.Response, error) {
	if err := settle(); err != nil {
		return nil, err
	}
	return s.next.RoundTrip(request)
}

func (c *controller) start() error {
	var arguments []string
	if err := json.Unmarshal([]byte(os.Getenv(commandVariable)), &arguments); err != nil {
		return fmt.Errorf("%s: %w", commandVariable, err)
	}
	c.gates = changedGates()
	file, err := render(c.configuration, c.gates)
	if err != nil {
		return err
	}
	path := inFolder("controller-%d.yaml", lives)
	if err := os.WriteFile(path, file, 0o600); err != nil {
		return err
	}
	arguments = append(arguments, "--kubeconfig", c.kubeconfig, "--config", path, "--metrics-port", "0")
	if port := c.webhooks.LocalServingPort; port != 0 {
		certificates := c.webhooks.LocalServingCertDir
		arguments = append(arguments, "--webhook-port", strconv.Itoa(port),
			"--tls-certificate", filepath.Join(certificates, "tls.crt"),
			"--tls-key", filepath.Join(certificates, "tls.key"))
	} else {
		arguments = append(arguments, "--webhook-port", "-1")
	}
	c.log = inFolder("controller-%d.log", lives)
	if err := c.spawn(arguments); err != nil {
		return err
	}
	if err := c.wait("lead and decide", c.isLeading); err != nil {
		return err
	}
	return c.wait("serve webhooks", c.servesWebhooks)
}

func (c *controller) spawn(arguments []string) error {
	log, err := os.Create(c.log)
	if err != nil {
		return err
	}
	defer log.Close()
	c.process = exec.Command(arguments[0], arguments[1:]...)
	c.process.Stdout, c.process.Stderr = log, log
	c.process.Env = os.Environ()
	for _, variable := range c.without {
		c.process.Env = append(c.process.Env, variable+"=1")
	}
	// A suite that is killed leaves no controller behind.
	c.process.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	c.ended = make(chan struct{})
	result := make(chan error)
	go func() {
		// The signal comes when the starting thread ends, so this one lives as long as the child.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := c.process.Start()
		result <- err
		if err == nil {
			_ = c.process.Wait()
			close(c.ended)
		}
	}()
	return <-result
}

func (c *controller) stop() {
	_ = c.process.Process.Signal(syscall.SIGTERM)
	select {
	case <-c.ended:
	case <-time.After(stopTimeout):
		_ = c.process.Process.Kill()
		<-c.ended
	}
}

func (c *controller) wait(what string, done func() bool) error {
	deadline := time.After(readyTimeout)
	for !done() {
		select {
		case <-c.ended:
			return fmt.Errorf("the controller ended before it could %s; see %s", what, c.log)
		case <-deadline:
			return fmt.Errorf("the controller did not %s in %s; see %s", what, readyTimeout, c.log)
		case <-time.After(lookInterval):
		}
	}
	return nil
}

func (c *controller) isLeading() bool {
	text, _ := os.ReadFile(c.log)
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, `{"event": "listening"`) {
			var doors struct{ Metrics string }
			if json.Unmarshal([]byte(line), &doors) == nil {
				c.metrics = doors.Metrics
			}
		}
	}
	return c.metrics != "" && bytes.Contains(text, []byte(" deciding "))
}

func (c *controller) servesWebhooks() bool {
	if c.webhooks.LocalServingPort == 0 {
		return true
	}
	address := net.JoinHostPort(c.webhooks.LocalServingHost, strconv.Itoa(c.webhooks.LocalServingPort))
	connection, err := net.DialTimeout("tcp", address, time.Second)
	if err == nil {
		connection.Close()
	}
	return err == nil
}

func inFolder(format string, number int) string {
	return filepath.Join(os.Getenv(folderVariable), fmt.Sprintf(format, number))
}

// writeKubeconfig writes what a client is made from as a file that other clients can read.
func writeKubeconfig(cfg *rest.Config, path string) error {
	type named map[string]any
	document := map[string]any{
		"apiVersion": "v1", "kind": "Config", "current-context": "suite",
		"clusters": []named{{"name": "suite", "cluster": named{
			"server": cfg.Host, "certificate-authority-data": cfg.CAData}}},
		"users": []named{{"name": "suite", "user": named{
			"client-certificate-data": cfg.CertData, "client-key-data": cfg.KeyData}}},
		"contexts": []named{{"name": "suite", "context": named{"cluster": "suite", "user": "suite"}}},
	}
	text, err := json.Marshal(document)
	if err != nil {
		return err
	}
	return os.WriteFile(path, text, 0o600)
}
