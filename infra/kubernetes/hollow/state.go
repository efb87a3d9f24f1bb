package hollow

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	apitest "k8s.io/cri-api/pkg/apis/testing"
)

// How containerd reports a container that was running when the machine went down: exit code and reason of unknownContainerStatus
// (containerd, internal/cri/server).
const (
	unknownExitCode = 255
	unknownReason   = "Unknown"
)

// state is what a container runtime keeps on disk: what runs, in which boot of the machine.
type state struct {
	BootID     string                             `json:"bootID"`
	PodCIDR    netip.Prefix                       `json:"podCIDR"`
	Sandboxes  map[string]*apitest.FakePodSandbox `json:"sandboxes"`
	Containers map[string]*apitest.FakeContainer  `json:"containers"`
	Images     map[string]*cri.Image              `json:"images"`
}

// stateFile is the path of a saved state.
type stateFile string

// read returns nil if there is none yet.
func (f stateFile) read() (*state, error) {
	text, err := os.ReadFile(string(f))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("fake container runtime: %w", err)
	}
	saved := &state{}
	if err := json.Unmarshal(text, saved); err != nil {
		return nil, fmt.Errorf("fake container runtime: %s: %w", f, err)
	}
	return saved, nil
}

// write replaces the file in one step, so that a kubelet killed meanwhile leaves the old or the new one.
func (f stateFile) write(text []byte) error {
	if err := os.MkdirAll(filepath.Dir(string(f)), 0o750); err != nil {
		return err
	}
	fresh := string(f) + ".new"
	if err := os.WriteFile(fresh, text, 0o600); err != nil {
		return err
	}
	return os.Rename(fresh, string(f))
}

// restore takes up what ran before. In another boot of the machine nothing runs any more: sandboxes are not ready and
// containers have exited, which the kubelet finds and restarts, each with its restart count raised.
func (r *Runtime) restore() error {
	saved, err := r.file.read()
	if err != nil || saved == nil {
		return err
	}
	bootID, err := readLine(bootIDFile)
	if err != nil {
		return err
	}
	if saved.BootID != bootID {
		saved.end(time.Now())
	}
	r.podCIDR = saved.PodCIDR
	for id, sandbox := range saved.Sandboxes {
		r.RuntimeService.Sandboxes[id] = sandbox
	}
	for id, container := range saved.Containers {
		r.RuntimeService.Containers[id] = container
	}
	for id, image := range saved.Images {
		r.ImageService.Images[id] = image
	}
	return nil
}

// end is what a power cycle does to everything that ran.
func (s *state) end(now time.Time) {
	for _, sandbox := range s.Sandboxes {
		sandbox.State = cri.PodSandboxState_SANDBOX_NOTREADY
	}
	for _, container := range s.Containers {
		if container.State == cri.ContainerState_CONTAINER_EXITED {
			continue
		}
		container.State = cri.ContainerState_CONTAINER_EXITED
		container.FinishedAt = now.UnixNano()
		container.ExitCode = unknownExitCode
		container.Reason = unknownReason
	}
}

// save writes what runs now.
func (r *Runtime) save() error {
	r.saving.Lock()
	defer r.saving.Unlock()
	text, err := r.snapshot()
	if err != nil {
		return err
	}
	return r.file.write(text)
}

func (r *Runtime) snapshot() ([]byte, error) {
	bootID, err := readLine(bootIDFile)
	if err != nil {
		return nil, err
	}
	r.network.Lock()
	podCIDR := r.podCIDR
	r.network.Unlock()
	r.RuntimeService.Lock()
	defer r.RuntimeService.Unlock()
	r.ImageService.Lock()
	defer r.ImageService.Unlock()
	return json.Marshal(state{
		BootID:     bootID,
		PodCIDR:    podCIDR,
		Sandboxes:  r.RuntimeService.Sandboxes,
		Containers: r.RuntimeService.Containers,
		Images:     r.ImageService.Images,
	})
}
