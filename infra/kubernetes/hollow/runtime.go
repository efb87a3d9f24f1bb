package hollow

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/cri-client/pkg/fake"
	criutil "k8s.io/cri-client/pkg/util"
	"k8s.io/klog/v2"
)

// imageSize is the size in bytes of every image. The CRI client refuses an image of size zero, which is what upstream's fake has.
const imageSize = 5 << 20

// socketLimit is the longest path a Unix socket can have (sun_path of unix(7), less the final zero).
const socketLimit = 107

// Runtime is a container runtime without containers, spoken to over a Unix socket as containerd would be.
//
// It is upstream's fake (k8s.io/cri-client/pkg/fake) with four things added: an image of any name can be pulled, each sandbox
// gets an address of its own from the node's pod CIDR, what runs is kept in a file, and so containers outlive the kubelet, and a
// change of the boot id ends them.
type Runtime struct {
	*fake.RemoteRuntime
	server *grpc.Server
	file   stateFile
	saving sync.Mutex

	network sync.Mutex
	podCIDR netip.Prefix
}

// StartRuntime serves a runtime on the socket below rootDir until Stop. It remembers what ran in this root directory before.
func StartRuntime(rootDir string) (*Runtime, error) {
	endpoint := runtimeEndpoint(rootDir)
	if socket := strings.TrimPrefix(endpoint, "unix://"); len(socket) > socketLimit {
		return nil, fmt.Errorf("--root-dir is too long for a socket: %d bytes of %d: %s", len(socket), socketLimit, socket)
	}
	r := &Runtime{RemoteRuntime: fake.NewFakeRemoteRuntime(), file: stateFile(filepath.Join(rootDir, "hollow-runtime.json"))}
	r.server = grpc.NewServer(grpc.UnaryInterceptor(r.intercept))
	r.RuntimeService.FakeStatus = &cri.RuntimeStatus{Conditions: []*cri.RuntimeCondition{
		{Type: cri.RuntimeReady, Status: true},
		{Type: cri.NetworkReady, Status: true},
	}}
	r.ImageService.SetFakeImageSize(imageSize)
	r.ImageService.SetFakeFilesystemUsage([]*cri.FilesystemUsage{imageDisk()})
	if err := r.restore(); err != nil {
		return nil, err
	}
	cri.RegisterRuntimeServiceServer(r.server, r)
	cri.RegisterImageServiceServer(r.server, r)
	listener, err := criutil.CreateListener(endpoint)
	if err != nil {
		return nil, fmt.Errorf("fake container runtime: %w", err)
	}
	go r.serve(listener)
	return r, nil
}

func (r *Runtime) serve(listener net.Listener) {
	if err := r.server.Serve(listener); err != nil {
		klog.ErrorS(err, "Fake container runtime stopped serving")
	}
}

// Stop closes the socket. The containers go on "running", as containerd's do.
func (r *Runtime) Stop() { r.server.Stop() }

// RunPodSandbox gives a sandbox with a network of its own an address. Upstream's fake gives all the same one.
func (r *Runtime) RunPodSandbox(ctx context.Context, req *cri.RunPodSandboxRequest) (*cri.RunPodSandboxResponse, error) {
	r.network.Lock()
	defer r.network.Unlock()
	resp, err := r.RemoteRuntime.RunPodSandbox(ctx, req)
	if err != nil {
		return nil, err
	}
	options := req.GetConfig().GetLinux().GetSecurityContext().GetNamespaceOptions()
	r.assignAddress(resp.PodSandboxId, options.GetNetwork() == cri.NamespaceMode_NODE)
	return resp, nil
}

// UpdateRuntimeConfig learns the node's pod CIDR, as a runtime with a network plugin does.
func (r *Runtime) UpdateRuntimeConfig(ctx context.Context, req *cri.UpdateRuntimeConfigRequest) (*cri.UpdateRuntimeConfigResponse, error) {
	first, _, _ := strings.Cut(req.GetRuntimeConfig().GetNetworkConfig().GetPodCidr(), ",")
	if cidr, err := netip.ParsePrefix(first); err == nil {
		r.network.Lock()
		r.podCIDR = cidr.Masked()
		r.network.Unlock()
	}
	return r.RemoteRuntime.UpdateRuntimeConfig(ctx, req)
}

// assignAddress picks the lowest address of the pod CIDR that no ready sandbox has. The first host is left to a gateway. Before the
// node has a pod CIDR, upstream's constant stays.
func (r *Runtime) assignAddress(sandboxID string, hostNetwork bool) {
	service := r.RuntimeService
	service.Lock()
	defer service.Unlock()
	sandbox := service.Sandboxes[sandboxID]
	if hostNetwork {
		sandbox.Network = &cri.PodSandboxNetworkStatus{}
		return
	}
	taken := map[string]bool{}
	for id, other := range service.Sandboxes {
		if id != sandboxID && other.State == cri.PodSandboxState_SANDBOX_READY {
			taken[other.GetNetwork().GetIp()] = true
		}
	}
	if !r.podCIDR.IsValid() {
		return
	}
	for address := r.podCIDR.Addr().Next().Next(); r.podCIDR.Contains(address); address = address.Next() {
		if !taken[address.String()] {
			sandbox.Network.Ip = address.String()
			return
		}
	}
}

// changes names the calls after which other things run than before.
var changes = map[string]bool{
	"RunPodSandbox": true, "StopPodSandbox": true, "RemovePodSandbox": true,
	"CreateContainer": true, "StartContainer": true, "StopContainer": true, "RemoveContainer": true,
	"PullImage": true, "RemoveImage": true, "UpdateRuntimeConfig": true,
}

// intercept keeps the state file true after each call that changes something.
func (r *Runtime) intercept(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	resp, err := handler(ctx, req)
	r.forgetCalls()
	if err == nil && changes[path.Base(info.FullMethod)] {
		err = r.save()
	}
	return resp, err
}

// forgetCalls empties the lists in which upstream's fakes note every call for their tests: they would grow for ever.
func (r *Runtime) forgetCalls() {
	r.RuntimeService.Lock()
	r.RuntimeService.Called = nil
	r.RuntimeService.Unlock()
	r.ImageService.Lock()
	r.ImageService.Called = nil
	r.ImageService.Unlock()
}

func imageDisk() *cri.FilesystemUsage {
	return &cri.FilesystemUsage{
		Timestamp:  time.Now().UnixNano(),
		FsId:       &cri.FilesystemIdentifier{Mountpoint: "/"},
		UsedBytes:  &cri.UInt64Value{Value: diskUsed},
		InodesUsed: &cri.UInt64Value{Value: 0},
	}
}

func runtimeEndpoint(rootDir string) string {
	return "unix://" + filepath.Join(rootDir, "hollow-runtime.sock")
}
