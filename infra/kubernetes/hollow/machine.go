package hollow

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"k8s.io/apimachinery/pkg/api/resource"
	cadvisortest "k8s.io/kubernetes/pkg/kubelet/cadvisor/testing"
)

// Where Linux keeps a machine's identity. Whoever starts the node mounts the node's own files over these.
const (
	machineIDFile = "/etc/machine-id"
	bootIDFile    = "/proc/sys/kernel/random/boot_id"
	kernelFile    = "/proc/sys/kernel/osrelease"
)

// Values of --hollow-runtime: who runs the fake container runtime.
const (
	runtimeInside = "inside" // this process
	runtimeBeside = "beside" // another process, started with "only"
	runtimeOnly   = "only"   // this process, and no kubelet
)

// The pretended disk. It is no real one, or a full disk of the host would put every node under disk pressure.
const (
	diskCapacity = 100 << 30 // bytes
	diskUsed     = 10 << 30  // bytes
	diskInodes   = 6_000_000
)

// memoryUsed is the pretended working set in bytes: small enough that no node is under memory pressure.
const memoryUsed = 256 << 20

// Machine is the computer the kubelet sees: real identity, pretended size. It takes the place of cAdvisor, whose interface
// (k8s.io/kubernetes/pkg/kubelet/cadvisor) it inherits from upstream's fake and answers more fully.
type Machine struct {
	cadvisortest.Fake
	cpus    int
	memory  resource.QuantityValue
	runtime string
}

// NewMachine is a machine of 4 CPUs and 8 GiB.
func NewMachine() *Machine {
	return &Machine{
		cpus:    4,
		memory:  resource.QuantityValue{Quantity: resource.MustParse("8Gi")},
		runtime: runtimeInside,
	}
}

// AddFlags adds what the kubelet itself cannot be told about its machine.
func (m *Machine) AddFlags(set *pflag.FlagSet) {
	set.IntVar(&m.cpus, "hollow-cpus", m.cpus, "CPUs of the pretended machine")
	set.Var(&m.memory, "hollow-memory", "memory of the pretended machine, as a Kubernetes quantity")
	set.StringVar(&m.runtime, "hollow-runtime", m.runtime, fmt.Sprintf(
		"who runs the fake container runtime: %s (this process), %s (another process with the same --root-dir), or %s (no kubelet)",
		runtimeInside, runtimeBeside, runtimeOnly))
}

// info reads the identity anew each time: a kubelet restarted after a power cycle reports the new boot id.
func (m *Machine) info() (*machineInfo, error) {
	machineID, err := readLine(machineIDFile)
	if err != nil {
		return nil, err
	}
	bootID, err := readLine(bootIDFile)
	if err != nil {
		return nil, err
	}
	return &machineInfo{
		MachineID:      machineID,
		SystemUUID:     machineID,
		BootID:         bootID,
		NumCores:       m.cpus,
		MemoryCapacity: m.memoryBytes(),
	}, nil
}

// VersionInfo names the real kernel and says openly that the rest is hollow.
func (m *Machine) VersionInfo() (*versionInfo, error) {
	kernel, err := readLine(kernelFile)
	if err != nil {
		return nil, err
	}
	return &versionInfo{KernelVersion: kernel, ContainerOsVersion: "hollow node"}, nil
}

// ContainerInfoV2 knows every cgroup asked for as one that uses nothing much. Without the root cgroup the kubelet's summary, and with
// it the eviction manager, would fail every ten seconds.
func (m *Machine) ContainerInfoV2(cgroup string, _ requestOptions) (map[string]containerInfo, error) {
	return map[string]containerInfo{cgroup: {
		Spec: containerSpec{
			HasCpu:    true,
			HasMemory: true,
			Memory:    memorySpec{Limit: m.memoryBytes()},
		},
		Stats: []*containerStats{{
			Timestamp: time.Now(),
			Cpu:       &cpuStats{},
			Memory:    &memoryStats{Usage: memoryUsed, WorkingSet: memoryUsed, RSS: memoryUsed},
		}},
	}}, nil
}

// RootFsInfo is the pretended disk.
func (m *Machine) RootFsInfo() (fsInfo, error) { return disk(), nil }

// GetDirFsInfo is the pretended disk, whatever the folder.
func (m *Machine) GetDirFsInfo(string) (fsInfo, error) { return disk(), nil }

// ImagesFsInfo is the pretended disk.
func (m *Machine) ImagesFsInfo(context.Context) (fsInfo, error) { return disk(), nil }

// ContainerFsInfo is the pretended disk.
func (m *Machine) ContainerFsInfo(context.Context) (fsInfo, error) { return disk(), nil }

func (m *Machine) memoryBytes() uint64 { return uint64(m.memory.Value()) }

func disk() fsInfo {
	inodes, free := uint64(diskInodes), uint64(diskInodes)
	return fsInfo{
		Timestamp:  time.Now(),
		Device:     "hollow",
		Mountpoint: "/",
		Capacity:   diskCapacity,
		Available:  diskCapacity - diskUsed,
		Usage:      diskUsed,
		Inodes:     &inodes,
		InodesFree: &free,
	}
}

func readLine(file string) (string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("the machine's identity: %w", err)
	}
	return strings.TrimSpace(string(text)), nil
}
