//go:build tools

// Package kwok pins the program that plays nodes and pods.
package kwok

import _ "sigs.k8s.io/kwok/cmd/kwok"
