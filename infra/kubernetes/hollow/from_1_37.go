//go:build kubernetes1.37

package hollow

import (
	cadvisorapi "github.com/google/cadvisor/lib/model"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
)

// The types of cAdvisor, which had others before Kubernetes 1.37 (before_1_37.go).
type (
	machineInfo    = cadvisorapi.MachineInfo
	versionInfo    = cadvisorapi.VersionInfo
	cpuStats       = cadvisorapi.CpuStats
	memoryStats    = cadvisorapi.MemoryStats
	requestOptions = cadvisorapi.RequestOptions
	containerInfo  = cadvisorapi.ContainerInfo
	containerSpec  = cadvisorapi.ContainerSpec
	containerStats = cadvisorapi.ContainerStats
	memorySpec     = cadvisorapi.MemorySpec
	fsInfo         = cadvisorapi.FsInfo
)

// MachineInfo is the identity and the size.
func (m *Machine) MachineInfo(klog.Logger) (*machineInfo, error) { return m.info() }

// GetCapacity is what cannot be derived from MachineInfo.
func (containerManager) GetCapacity(_ klog.Logger, localStorageCapacityIsolation bool) v1.ResourceList {
	return capacity(localStorageCapacityIsolation)
}
