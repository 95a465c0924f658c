//go:build tools

// Package tools names the commands that build.sh builds, so that `go mod tidy` keeps what they need.
package tools

import (
	_ "sigs.k8s.io/kueue/cmd/kueue"
	_ "sigs.k8s.io/kueue/cmd/kueuectl"
)
