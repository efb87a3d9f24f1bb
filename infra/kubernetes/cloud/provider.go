// Package cloud is a provider of machines that are not there: it answers upstream's cloud controller manager what a file
// says of each node, and writes down what it was asked.
package cloud

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	cloudprovider "k8s.io/cloud-provider"
)

// What the file of answers says of a node; of one that it does not name, Exists.
const (
	Exists   = "exists"
	ShutDown = "shut-down"
	Gone     = "gone"
)

// As the API server's audit log has it: every reader of such lines knows microseconds.
const microseconds = "2006-01-02T15:04:05.000000Z"

// call is one line of the file of calls.
type call struct {
	Time   string `json:"time"`
	Method string `json:"method"`
	Node   string `json:"node,omitempty"`
}

// Provider has machines and nothing else of a cloud.
type Provider struct {
	answers   string
	addresses string
	calls     *os.File
	writing   sync.Mutex
}

// New reads its answers from two files, anew at each call, and adds a line for each call to the last. Without a file of
// addresses, or in one that does not name a node, a machine has none.
func New(answers, addresses, calls string) (*Provider, error) {
	file, err := os.OpenFile(calls, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	return &Provider{answers: answers, addresses: addresses, calls: file}, nil
}

// Initialize is called once, before the controllers run: its line says that no call before it is missing.
func (p *Provider) Initialize(cloudprovider.ControllerClientBuilder, <-chan struct{}) {
	if err := p.write("Initialize", ""); err != nil {
		panic(err) // nobody would know what is asked from here on
	}
}

// InstanceExists is asked first of a node that is not Ready.
func (p *Provider) InstanceExists(_ context.Context, node *v1.Node) (bool, error) {
	state, err := p.ask("InstanceExists", node)
	return state != Gone, err
}

// InstanceShutdown is asked of a node that exists.
func (p *Provider) InstanceShutdown(_ context.Context, node *v1.Node) (bool, error) {
	state, err := p.ask("InstanceShutdown", node)
	return state == ShutDown, err
}

// InstanceMetadata is for the controller that sets nodes up, where it runs.
func (p *Provider) InstanceMetadata(_ context.Context, node *v1.Node) (*cloudprovider.InstanceMetadata, error) {
	if _, err := p.ask("InstanceMetadata", node); err != nil {
		return nil, err
	}
	addresses, err := p.addressesOf(node)
	if err != nil {
		return nil, err
	}
	return &cloudprovider.InstanceMetadata{ProviderID: "nodeproof://" + node.Name, NodeAddresses: addresses}, nil
}

func (p *Provider) addressesOf(node *v1.Node) ([]v1.NodeAddress, error) {
	if p.addresses == "" {
		return nil, nil
	}
	content, err := os.ReadFile(p.addresses)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var all map[string][]v1.NodeAddress
	if err := json.Unmarshal(content, &all); err != nil {
		return nil, err
	}
	return all[node.Name], nil
}

// ask writes a call down before it is answered: what is not written down was not answered either.
func (p *Provider) ask(method string, node *v1.Node) (string, error) {
	if err := p.write(method, node.Name); err != nil {
		return "", err
	}
	content, err := os.ReadFile(p.answers)
	if err != nil {
		return "", err
	}
	var states map[string]string
	if err := json.Unmarshal(content, &states); err != nil {
		return "", err
	}
	switch state := states[node.Name]; state {
	case "":
		return Exists, nil
	case Exists, ShutDown, Gone:
		return state, nil
	default:
		return "", fmt.Errorf("%s: no state %q of %s", p.answers, state, node.Name)
	}
}

func (p *Provider) write(method, node string) error {
	line, err := json.Marshal(call{time.Now().UTC().Format(microseconds), method, node})
	if err != nil {
		return err
	}
	p.writing.Lock()
	defer p.writing.Unlock()
	_, err = p.calls.Write(append(line, '\n'))
	return err
}

func (p *Provider) InstancesV2() (cloudprovider.InstancesV2, bool)   { return p, true }
func (p *Provider) Instances() (cloudprovider.Instances, bool)       { return nil, false }
func (p *Provider) LoadBalancer() (cloudprovider.LoadBalancer, bool) { return nil, false }
func (p *Provider) Zones() (cloudprovider.Zones, bool)               { return nil, false }
func (p *Provider) Clusters() (cloudprovider.Clusters, bool)         { return nil, false }
func (p *Provider) Routes() (cloudprovider.Routes, bool)             { return nil, false }
func (p *Provider) ProviderName() string                             { return Name }
func (p *Provider) HasClusterID() bool                               { return true }
