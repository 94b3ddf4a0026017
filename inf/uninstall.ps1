<#
.SYNOPSIS
Removes the software RoCEv2 adapter, its lower edge and its driver packages.

.DESCRIPTION
First close what uses RDMA: SMB connections, NDKPing, other consumers. The adapter's removal waits
for them, and killing one of them while it waits can stop the machine with bug check 0xCE.

Each step looks whether there is something to do, so the script can be run again, also after an
installation that failed half way. A step that fails does not stop the ones that do not need it.

.PARAMETER RemoveCertificate
Also take back the trust in the test certificate that install.ps1 gave.

.EXAMPLE
.\uninstall.ps1 -WhatIf
#>
#Requires -Version 5.1
#Requires -RunAsAdministrator
[CmdletBinding(SupportsShouldProcess = $true, ConfirmImpact = 'Medium')]
param([switch] $RemoveCertificate)

Set-StrictMode -Version 2.0
$ErrorActionPreference = 'Stop'
. (Join-Path $PSScriptRoot 'common.ps1')

$failed = 0
function Invoke-Removal([string] $Target, [string] $Action, [scriptblock] $Do) {
    try { Invoke-Step $Target $Action $Do }
    catch {
        $script:failed += 1
        Write-Warning ('{0}: {1}: {2}' -f $Action, $Target, $_.Exception.Message)
    }
}

$state = $null
if (Test-Path $StateFile) { $state = Get-Content $StateFile -Raw | ConvertFrom-Json }

if (Test-Path $CounterManifest) {
    # Whatever it says of counters that are not registered.
    Invoke-Removal $CounterManifest 'Remove the performance counters' {
        Invoke-Native 'unlodctr.exe' @("/m:$CounterManifest") (-1..65535)
    }
}

# The adapter before the protocol: removing the protocol deletes the service, which the adapter runs on.
foreach ($device in @(Get-VnicDevice)) {
    Invoke-Removal $device.InstanceId 'Remove the device' { Remove-VnicDevice $device.InstanceId }
}
$devicesLeft = @(Get-VnicDevice).Count -gt 0 -and -not $WhatIfPreference
if ($devicesLeft) {
    throw 'The adapter is still there; is a consumer holding it? Close it or restart, then run this again.'
}
if (Test-LowerEdge) {
    Invoke-Removal $ComponentId 'Remove the lower edge' {
        Invoke-Native 'netcfg.exe' @('-u', $ComponentId)
        if (Test-LowerEdge) { throw "netcfg did not remove $ComponentId." }
    }
}

if ($state -and $state.NicGuid) {
    $nic = Get-NetAdapter -IncludeHidden | Where-Object { $_.InterfaceGuid -eq $state.NicGuid }
    $unbound = @($state.Unbound | Where-Object { $_ })
    if ($nic -and $unbound.Count -gt 0) {
        Invoke-Removal $nic.Name "Bind $($unbound -join ', ') again" {
            Enable-NetAdapterBinding -Name $nic.Name -ComponentID $unbound -Confirm:$false
        }
    }
    elseif ($unbound.Count -gt 0) {
        Write-Warning "The NIC $($state.NicGuid) is gone; nothing is bound again."
    }
}
else {
    Write-Warning "No record in $StateFile. After Inherit mode: Enable-NetAdapterBinding ms_tcpip, ms_tcpip6."
}

foreach ($driver in @(Get-StagedDriver)) {
    Invoke-Removal "$($driver.Driver) ($(Split-Path -Leaf $driver.OriginalFileName))" 'Delete the package' {
        Invoke-Native 'pnputil.exe' @('/delete-driver', $driver.Driver, '/uninstall') @(0, 3010)
    }
}
if (Test-Path "HKLM:\SYSTEM\CurrentControlSet\Services\$ServiceName") {
    # 1072: it is marked already and goes with the next restart.
    Invoke-Removal $ServiceName 'Delete the service' {
        Invoke-Native 'sc.exe' @('delete', $ServiceName) @(0, 1072)
    }
}
$left = Join-Path $env:windir "System32\drivers\$ImageName"
if (Test-Path $left) { Write-Warning "$left is left over. Delete it after a restart." }

if ($RemoveCertificate -and $state -and $state.Certificate) {
    # In My is the key, if this machine made the certificate.
    foreach ($store in @($state.Stores | Where-Object { $_ }) + 'My') {
        $path = "Cert:\LocalMachine\$store\$($state.Certificate)"
        if (-not (Test-Path $path)) { continue }
        Invoke-Removal $path 'Take back the trust' {
            Edit-CertificateStore $store 'Remove' (Get-Item $path)
        }
    }
}

if ($failed -gt 0) { throw "$failed step(s) failed; see the warnings above, then run this again." }
# The record is kept as long as it says which certificate is still trusted.
if ((Test-Path $StateFile) -and ($RemoveCertificate -or -not $state.Certificate)) {
    Invoke-Step $StateFile 'Delete the record' { Remove-Item $StateFile -Force -Confirm:$false }
}
elseif (Test-Path $StateFile) {
    Invoke-Step $StateFile 'Note that nothing is unbound any more' {
        $state.NicGuid = $null
        $state.Unbound = @()
        $state | ConvertTo-Json | Set-Content -Path $StateFile -Encoding Ascii
    }
    Write-Host 'The test certificate stays trusted; -RemoveCertificate takes it back.'
}
Write-Host 'Test signing is left as it is: bcdedit /set testsigning off ends it.'
