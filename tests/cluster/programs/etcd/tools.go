//go:build tools

// Package etcd pins the database of the control plane.
package etcd

import _ "go.etcd.io/etcd/server/v3"
