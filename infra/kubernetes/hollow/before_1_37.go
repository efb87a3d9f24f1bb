//go:build !kubernetes1.37

package hollow

import (
	cadvisorapi "github.com/google/cadvisor/info/v1"
	cadvisorapiv2 "github.com/google/cadvisor/info/v2"

	v1 "k8s.io/api/core/v1"
)

// The types of cAdvisor, which has had others since Kubernetes 1.37 (from_1_37.go).
type (
	machineInfo    = cadvisorapi.MachineInfo
	versionInfo    = cadvisorapi.VersionInfo
	cpuStats       = cadvisorapi.CpuStats
	memoryStats    = cadvisorapi.MemoryStats
	requestOptions = cadvisorapiv2.RequestOptions
	containerInfo  = cadvisorapiv2.ContainerInfo
	containerSpec  = cadvisorapiv2.ContainerSpec
	containerStats = cadvisorapiv2.ContainerStats
	memorySpec     = cadvisorapiv2.MemorySpec
	fsInfo         = cadvisorapiv2.FsInfo
)

// MachineInfo is the identity and the size.
func (m *Machine) MachineInfo() (*machineInfo, error) { return m.info() }

// GetCapacity is what cannot be derived from MachineInfo.
func (containerManager) GetCapacity(localStorageCapacityIsolation bool) v1.ResourceList {
	return capacity(localStorageCapacityIsolation)
}
