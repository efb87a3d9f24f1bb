package main

import (
	"slices"
	"testing"
)

func TestChoose(t *testing.T) {
	for _, c := range []struct {
		args []string
		role string
		rest []string
	}{
		{[]string{"/lab/bin/kubelet", "--version"}, "kubelet", []string{"/lab/bin/kubelet", "--version"}},
		{[]string{"./components", "etcd", "--name", "lab"}, "etcd", []string{"etcd", "--name", "lab"}},
		{[]string{"kubectl", "etcd"}, "kubectl", []string{"kubectl", "etcd"}},
		{[]string{"./components"}, "components", []string{"./components"}},
	} {
		role, rest := choose(c.args)
		if role != c.role || !slices.Equal(rest, c.rest) {
			t.Errorf("choose(%q) is %q, %q; expected %q, %q", c.args, role, rest, c.role, c.rest)
		}
	}
}
