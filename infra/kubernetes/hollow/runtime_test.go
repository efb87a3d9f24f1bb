package hollow

import (
	"context"
	"encoding/json"
	"os"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// client speaks to a runtime as the kubelet does: over its socket.
type client struct {
	*testing.T
	cri.RuntimeServiceClient
	images cri.ImageServiceClient
	ctx    context.Context
}

// start runs a runtime on rootDir for the rest of the test, or until stop is called.
func start(t *testing.T, rootDir string) (c client, stop func()) {
	t.Helper()
	runtime, err := StartRuntime(rootDir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(runtime.Stop)
	connection, err := grpc.NewClient(runtimeEndpoint(rootDir), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = connection.Close() })
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	t.Cleanup(cancel)
	return client{t, cri.NewRuntimeServiceClient(connection), cri.NewImageServiceClient(connection), ctx}, runtime.Stop
}

// run starts a pod with one container and returns the ids of both.
func (c client) run(name string, mode cri.NamespaceMode) (sandbox, container string) {
	c.Helper()
	config := &cri.PodSandboxConfig{
		Metadata: &cri.PodSandboxMetadata{Name: name, Namespace: "default", Uid: name},
		Linux: &cri.LinuxPodSandboxConfig{SecurityContext: &cri.LinuxSandboxSecurityContext{
			NamespaceOptions: &cri.NamespaceOption{Network: mode},
		}},
	}
	ran, err := c.RunPodSandbox(c.ctx, &cri.RunPodSandboxRequest{Config: config})
	c.must(err)
	created, err := c.CreateContainer(c.ctx, &cri.CreateContainerRequest{
		PodSandboxId:  ran.PodSandboxId,
		Config:        &cri.ContainerConfig{Metadata: &cri.ContainerMetadata{Name: "main"}, Image: &cri.ImageSpec{Image: "any"}},
		SandboxConfig: config,
	})
	c.must(err)
	_, err = c.StartContainer(c.ctx, &cri.StartContainerRequest{ContainerId: created.ContainerId})
	c.must(err)
	return ran.PodSandboxId, created.ContainerId
}

func (c client) container(id string) *cri.ContainerStatus {
	c.Helper()
	resp, err := c.ContainerStatus(c.ctx, &cri.ContainerStatusRequest{ContainerId: id})
	c.must(err)
	return resp.Status
}

func (c client) sandbox(id string) *cri.PodSandboxStatus {
	c.Helper()
	resp, err := c.PodSandboxStatus(c.ctx, &cri.PodSandboxStatusRequest{PodSandboxId: id})
	c.must(err)
	return resp.Status
}

func (c client) must(err error) {
	c.Helper()
	if err != nil {
		c.Fatal(err)
	}
}

func TestContainersOutliveTheRuntime(t *testing.T) {
	root := t.TempDir()
	before, stop := start(t, root)
	sandbox, container := before.run("pod", cri.NamespaceMode_POD)
	started := before.container(container).StartedAt
	stop()

	after, _ := start(t, root)
	if status := after.container(container); status.State != cri.ContainerState_CONTAINER_RUNNING || status.StartedAt != started {
		t.Errorf("the container is %v since %d, expected running since %d", status.State, status.StartedAt, started)
	}
	if state := after.sandbox(sandbox).State; state != cri.PodSandboxState_SANDBOX_READY {
		t.Errorf("the sandbox is %v", state)
	}
}

func TestAnotherBootEndsWhatRan(t *testing.T) {
	root := t.TempDir()
	before, stop := start(t, root)
	sandbox, container := before.run("pod", cri.NamespaceMode_POD)
	stop()
	changeBoot(t, root)

	after, _ := start(t, root)
	status := after.container(container)
	if status.State != cri.ContainerState_CONTAINER_EXITED || status.ExitCode != unknownExitCode || status.FinishedAt == 0 {
		t.Errorf("the container is %v, exit code %d, finished at %d", status.State, status.ExitCode, status.FinishedAt)
	}
	if state := after.sandbox(sandbox).State; state != cri.PodSandboxState_SANDBOX_NOTREADY {
		t.Errorf("the sandbox is %v", state)
	}
}

// changeBoot makes a saved state one of another boot than this machine's.
func changeBoot(t *testing.T, root string) {
	t.Helper()
	file := root + "/hollow-runtime.json"
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	saved := map[string]any{}
	if err := json.Unmarshal(text, &saved); err != nil {
		t.Fatal(err)
	}
	saved["bootID"] = "another"
	if text, err = json.Marshal(saved); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestEachPodHasAnAddressOfItsOwn(t *testing.T) {
	c, _ := start(t, t.TempDir())
	_, err := c.UpdateRuntimeConfig(c.ctx, &cri.UpdateRuntimeConfigRequest{RuntimeConfig: &cri.RuntimeConfig{
		NetworkConfig: &cri.NetworkConfig{PodCidr: "10.244.3.0/24"},
	}})
	c.must(err)
	first, _ := c.run("first", cri.NamespaceMode_POD)
	second, _ := c.run("second", cri.NamespaceMode_POD)
	host, _ := c.run("host", cri.NamespaceMode_NODE)
	_, err = c.StopPodSandbox(c.ctx, &cri.StopPodSandboxRequest{PodSandboxId: first})
	c.must(err)
	third, _ := c.run("third", cri.NamespaceMode_POD)
	for id, expected := range map[string]string{second: "10.244.3.3", host: "", third: "10.244.3.2"} {
		if got := c.sandbox(id).GetNetwork().GetIp(); got != expected {
			t.Errorf("%s has %q, expected %q", id, got, expected)
		}
	}
}

func TestAnyImageCanBePulledAndHasASize(t *testing.T) {
	c, _ := start(t, t.TempDir())
	image := &cri.ImageSpec{Image: "registry.example/never/heard:of"}
	before, err := c.images.ImageStatus(c.ctx, &cri.ImageStatusRequest{Image: image})
	c.must(err)
	if before.Image != nil {
		t.Errorf("an image is there before anybody pulled it")
	}
	pulled, err := c.images.PullImage(c.ctx, &cri.PullImageRequest{Image: image})
	c.must(err)
	after, err := c.images.ImageStatus(c.ctx, &cri.ImageStatusRequest{Image: &cri.ImageSpec{Image: pulled.ImageRef}})
	c.must(err)
	if after.Image.GetId() == "" || after.Image.GetSize() != imageSize {
		t.Errorf("the pulled image is %v", after.Image)
	}
}

func TestATooLongRootIsRefused(t *testing.T) {
	if _, err := StartRuntime(t.TempDir() + "/" + string(make([]byte, socketLimit))); err == nil {
		t.Error("no error")
	}
}
