package cloud

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func named(name string) *v1.Node {
	return &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

func provider(t *testing.T, answers string) (*Provider, string, string) {
	t.Helper()
	told, calls := filepath.Join(t.TempDir(), "answers"), filepath.Join(t.TempDir(), "calls")
	if err := os.WriteFile(told, []byte(answers), 0o600); err != nil {
		t.Fatal(err)
	}
	made, err := New(told, filepath.Join(filepath.Dir(calls), "addresses"), calls)
	if err != nil {
		t.Fatal(err)
	}
	return made, told, calls
}

func TestAnswersAreWhatTheFileSays(t *testing.T) {
	cloud, told, _ := provider(t, `{"a": "shut-down", "b": "gone", "c": "exists"}`)
	for _, c := range []struct {
		node             string
		exists, shutDown bool
	}{{"a", true, true}, {"b", false, false}, {"c", true, false}, {"unknown", true, false}} {
		exists, err := cloud.InstanceExists(context.Background(), named(c.node))
		if exists != c.exists || err != nil {
			t.Errorf("%s exists: %v, %v", c.node, exists, err)
		}
		shutDown, err := cloud.InstanceShutdown(context.Background(), named(c.node))
		if shutDown != c.shutDown || err != nil {
			t.Errorf("%s is shut down: %v, %v", c.node, shutDown, err)
		}
	}
	if err := os.WriteFile(told, []byte(`{"a": "gone"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if exists, err := cloud.InstanceExists(context.Background(), named("a")); exists || err != nil {
		t.Errorf("the file is not read anew: %v, %v", exists, err)
	}
}

func TestNoAnswerIsAnErrorAndNotANo(t *testing.T) {
	for _, answers := range []string{"", `{"a": "lost"}`} {
		cloud, _, _ := provider(t, answers)
		if _, err := cloud.InstanceExists(context.Background(), named("a")); err == nil {
			t.Errorf("%q is an answer", answers)
		}
	}
}

func TestCallsAreWrittenDownInOrder(t *testing.T) {
	cloud, _, calls := provider(t, "{}")
	cloud.Initialize(nil, nil)
	_, _ = cloud.InstanceExists(context.Background(), named("a"))
	_, _ = cloud.InstanceShutdown(context.Background(), named("b"))
	content, err := os.ReadFile(calls)
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, line := range strings.Split(strings.TrimSpace(string(content)), "\n") {
		var told call
		if err := json.Unmarshal([]byte(line), &told); err != nil {
			t.Fatal(err)
		}
		if _, err := time.Parse(microseconds, told.Time); err != nil {
			t.Error(err)
		}
		found = append(found, strings.TrimSpace(told.Method+" "+told.Node))
	}
	if said := strings.Join(found, ", "); said != "Initialize, InstanceExists a, InstanceShutdown b" {
		t.Error(said)
	}
}

func TestAMachineHasTheAddressesOfTheFileAndNoneWithoutIt(t *testing.T) {
	cloud, _, calls := provider(t, `{}`)
	addresses := func() []v1.NodeAddress {
		metadata, err := cloud.InstanceMetadata(context.Background(), named("a"))
		if err != nil || metadata.ProviderID != "nodeproof://a" {
			t.Fatalf("%v, %v", metadata, err)
		}
		return metadata.NodeAddresses
	}
	if told := addresses(); told != nil {
		t.Errorf("nobody gave it %v", told)
	}
	file := filepath.Join(filepath.Dir(calls), "addresses")
	if err := os.WriteFile(file, []byte(`{"a": [{"type": "ExternalIP", "address": "192.0.2.1"}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if told := addresses(); len(told) != 1 || told[0] != (v1.NodeAddress{Type: v1.NodeExternalIP, Address: "192.0.2.1"}) {
		t.Errorf("the file is not read anew: %v", told)
	}
}
