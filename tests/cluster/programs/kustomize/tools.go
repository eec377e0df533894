//go:build tools

// Package kustomize pins the release that kubectl 1.36.3 carries (kubectl apply -k).
package kustomize

import _ "sigs.k8s.io/kustomize/kustomize/v5"
