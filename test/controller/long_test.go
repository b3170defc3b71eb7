//go:build long

package controller

import "testing"

// The sizes of the issue. make test-long runs them.

func TestLongMassReclaim(t *testing.T)                     { massReclaim(t, 300, 600) }
func TestLongMassReclaimWithRoomForTheFloors(t *testing.T) { massReclaimForFloors(t, 100) }
func TestLongKilledWhileMoving(t *testing.T)               { killedWhileMoving(t, 50, 20) }
func TestLongSpotComesAndGoes(t *testing.T)                { spotComesAndGoes(t, 8) }
