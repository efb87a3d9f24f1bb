package hollow

import (
	"context"
	"os"

	"k8s.io/mount-utils"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	kubeletapp "k8s.io/kubernetes/cmd/kubelet/app"
	"k8s.io/kubernetes/cmd/kubelet/app/options"
	"k8s.io/kubernetes/pkg/kubelet"
	"k8s.io/kubernetes/pkg/kubelet/cm"
	containertest "k8s.io/kubernetes/pkg/kubelet/container/testing"
	"k8s.io/kubernetes/pkg/util/oom"
	"k8s.io/kubernetes/pkg/volume"
	"k8s.io/kubernetes/pkg/volume/hostpath"
	"k8s.io/kubernetes/pkg/volume/util/hostutil"
	"k8s.io/kubernetes/pkg/volume/util/subpath"
)

// dependencies is what upstream's kubelet would be given (UnsecuredDependencies), with everything that touches the computer replaced.
// The list of replacements is that of k8s.io/kubernetes/pkg/kubemark/hollow_kubelet.go. Deliberately kept: the clients and the
// event recorder, which Run then makes itself, and the probe manager.
func dependencies(ctx context.Context, server *options.KubeletServer, machine *Machine) (*kubelet.Dependencies, error) {
	deps, err := kubeletapp.UnsecuredDependencies(ctx, server, utilfeature.DefaultFeatureGate)
	if err != nil {
		return nil, err
	}
	deps.CAdvisorInterface = machine
	deps.ContainerManager = containerManager{cm.NewStubContainerManager()}
	deps.OSInterface = &containertest.FakeOS{StatFn: emptyLog}
	deps.OOMAdjuster = oom.NewFakeOOMAdjuster()
	deps.Mounter = &mount.FakeMounter{}
	deps.Subpather = &subpath.FakeSubpath{}
	deps.HostUtil = hostutil.NewFakeHostUtil(nil)
	deps.VolumePlugins = withFakeHostPath(deps.VolumePlugins)
	return deps, nil
}

// emptyLog makes every file an empty one. Only container logs are asked about, and the log rotation is content with empty ones.
func emptyLog(string) (os.FileInfo, error) { return os.Stat(os.DevNull) }

// withFakeHostPath replaces the hostPath plugin: the real one would look for the pod's paths on the fake host and refuse the pod.
func withFakeHostPath(plugins []volume.VolumePlugin) []volume.VolumePlugin {
	fakes := hostpath.FakeProbeVolumePlugins(volume.VolumeConfig{})
	replaced := make([]volume.VolumePlugin, 0, len(plugins))
	for _, plugin := range plugins {
		if plugin.GetPluginName() != fakes[0].GetPluginName() {
			replaced = append(replaced, plugin)
		}
	}
	return append(replaced, fakes...)
}

// containerManager is upstream's stub, on a machine that has a disk and a cgroup of pods: the stub has zero bytes of ephemeral
// storage, and without that cgroup the eviction manager complains every ten seconds.
type containerManager struct{ cm.ContainerManager }

// capacity is that of the pretended disk.
func capacity(localStorageCapacityIsolation bool) v1.ResourceList {
	if !localStorageCapacityIsolation {
		return v1.ResourceList{}
	}
	return v1.ResourceList{v1.ResourceEphemeralStorage: *resource.NewQuantity(diskCapacity, resource.BinarySI)}
}

// GetPodCgroupRoot is a name that Machine.ContainerInfoV2 is then asked about, no cgroup.
func (containerManager) GetPodCgroupRoot() string { return "/kubepods" }

// NewPodContainerManager is upstream's stub, with no complaint about each pod's missing cgroup whenever its status is computed.
func (m containerManager) NewPodContainerManager() cm.PodContainerManager {
	return podContainerManager{m.ContainerManager.NewPodContainerManager()}
}

type podContainerManager struct{ cm.PodContainerManager }

// GetPodCgroupConfig knows nothing, which is how the kubelet's readers of it (cm.MemoryLimitsFromConfig and its kin) want to be told
// that there are no limits.
func (podContainerManager) GetPodCgroupConfig(*v1.Pod, v1.ResourceName) (*cm.ResourceConfig, error) {
	return nil, nil
}
