<#
.SYNOPSIS
Installs the software RoCEv2 adapter on top of one network adapter of this machine.

.DESCRIPTION
Each step first looks whether it is already done, so the script can be run again. If a step fails,
those of this run are undone. -WhatIf shows the steps and changes nothing.

Needed once beforehand, with a restart: Secure Boot off, and bcdedit /set testsigning on.

.PARAMETER NetAdapter
The NIC that carries the frames, by the name that Get-NetAdapter shows.

.PARAMETER Package
A folder with the two .inf, the two signed .cat and ndkrocev2.sys. With -Image it is made there.

.PARAMETER Image
ndkrocev2.sys. The package is then made out of it and the .inx files next to this script, and signed
with a certificate of its own. This needs the WDK: stampinf, inf2cat, signtool.

.PARAMETER CatalogOs
What inf2cat is told with /os; by default 10_X64, on ARM64 Server10_ARM64.

.PARAMETER Mode
Inherit: the adapter takes the NIC's place, address included, and TCP/IP is unbound from the NIC.
Own: it has an address of its own beside the NIC; in a guest, MAC spoofing must be allowed.

.EXAMPLE
.\install.ps1 -NetAdapter Ethernet -Package C:\ndkrocev2 -IPAddress 192.168.7.1 -PrefixLength 24

.EXAMPLE
.\install.ps1 -NetAdapter Ethernet -Image .\ndkrocev2.sys -Package C:\ndkrocev2 -Mode Own -WhatIf
#>
#Requires -Version 5.1
#Requires -RunAsAdministrator
[CmdletBinding(SupportsShouldProcess = $true, ConfirmImpact = 'Medium')]
param(
    [Parameter(Mandatory = $true)] [string] $NetAdapter,
    [string] $Package = (Join-Path $PSScriptRoot 'package'),
    [string] $Image,
    [string] $DriverVersion = '0.1.0.0',
    [string] $CatalogOs,
    [ValidateSet('Inherit', 'Own')] [string] $Mode = 'Inherit',
    [string] $Name = 'RoCEv2',
    [string] $IPAddress,
    [ValidateRange(1, 128)] [int] $PrefixLength = 24,
    [string] $DefaultGateway,
    [string[]] $DnsServer,
    [string] $DeviceTool
)

Set-StrictMode -Version 2.0
$ErrorActionPreference = 'Stop'
. (Join-Path $PSScriptRoot 'common.ps1')
# The programs called below do not share PowerShell's idea of the current folder.
$Package = $ExecutionContext.SessionState.Path.GetUnresolvedProviderPathFromPSPath($Package)

# What uninstall.ps1 must put back. Kept from an earlier run of this script, if there was one.
$state = @{ NicGuid = $null; Unbound = @(); Certificate = $null; Stores = @() }
if (Test-Path $StateFile) {
    $saved = Get-Content $StateFile -Raw | ConvertFrom-Json
    $state.NicGuid = $saved.NicGuid
    $state.Unbound = @($saved.Unbound)
    $state.Certificate = $saved.Certificate
    $state.Stores = @($saved.Stores)
}

function Save-State {
    New-Item -ItemType Directory -Path (Split-Path $StateFile) -Force | Out-Null
    $state | ConvertTo-Json | Set-Content -Path $StateFile -Encoding Ascii
}

# ---- The machine

# The Machine field of an image's header.
function Get-ImageMachine([string] $File) {
    $bytes = [IO.File]::ReadAllBytes((Resolve-Path $File).ProviderPath)
    [BitConverter]::ToUInt16($bytes, [BitConverter]::ToInt32($bytes, 0x3C) + 4)
}

function Assert-Machine {
    $machine = Get-Machine
    if ($Image -and (Test-Path $Image) -and (Get-ImageMachine $Image) -ne $machine.Code) {
        throw "'$Image' is not for $($machine.Name), which this machine is."
    }
    $build = [Environment]::OSVersion.Version.Build
    if ($build -lt 17763) { throw "Windows Server 2019 (build 17763) or newer is needed, not $build." }
    $options = (Get-ItemProperty 'HKLM:\SYSTEM\CurrentControlSet\Control').SystemStartOptions
    if ($options -notmatch 'TESTSIGNING') {
        $message = 'Test signing is off. Switch Secure Boot off, bcdedit /set testsigning on, restart.'
        if (-not $WhatIfPreference) { throw $message }
        Write-Warning $message
    }
    if ((Get-CimInstance Win32_OperatingSystem).ProductType -eq 1) {
        Write-Warning 'SMB Direct exists on Server, Enterprise, Education and Pro for Workstations only.'
    }
}

function Get-Nic {
    $found = Get-NetAdapter -ErrorAction SilentlyContinue | Where-Object { $_.Name -eq $NetAdapter }
    if (-not $found) {
        $names = (Get-NetAdapter | ForEach-Object { $_.Name }) -join ', '
        throw "There is no network adapter '$NetAdapter'. There are: $names"
    }
    $vnic = Get-Vnic
    if ($vnic -and $vnic.InterfaceGuid -eq $found.InterfaceGuid) {
        throw "'$NetAdapter' is the RoCEv2 adapter itself. Name the NIC below it."
    }
    if ($found.MediaType -ne '802.3') { throw "'$NetAdapter' is not Ethernet but $($found.MediaType)." }
    $bridged = Get-NetAdapterBinding -Name $NetAdapter -ComponentID 'vms_pp' -ErrorAction SilentlyContinue
    if ($bridged -and $bridged.Enabled) {
        throw "'$NetAdapter' belongs to a Hyper-V switch. Name its vEthernet adapter or another NIC."
    }
    $unbound = @($state.Unbound | Where-Object { $_ })
    if ($unbound.Count -gt 0 -and ($state.NicGuid -ne $found.InterfaceGuid -or $Mode -eq 'Own')) {
        throw 'Another NIC, or this one in Inherit mode, is in use. Run uninstall.ps1 first.'
    }
    if ($found.Status -ne 'Up') { Write-Warning "'$NetAdapter' is $($found.Status): the link will be down." }
    return $found
}

# ---- The package

function New-Package {
    $stampinf = Find-Tool @('stampinf.exe')
    $inf2cat = Find-Tool @('inf2cat.exe')
    $signtool = Find-Tool @('signtool.exe')
    $machine = Get-Machine
    if (-not ($stampinf -and $inf2cat -and $signtool)) {
        throw 'stampinf, inf2cat or signtool is missing. Install the WDK, or pass a signed -Package.'
    }
    if (-not (Test-Path $Image)) { throw "There is no file '$Image'." }
    New-Item -ItemType Directory -Path $Package -Force | Out-Null
    Copy-Item $Image (Join-Path $Package $ImageName) -Force
    foreach ($inf in $VnicInf, $LowerInf) {
        $file = Join-Path $Package "$inf.inf"
        # Line by line, for Windows line ends.
        Get-Content (Join-Path $PSScriptRoot "$inf.inx") | Set-Content $file -Encoding Ascii
        Invoke-Native $stampinf @('-f', $file, '-d', '*', '-a', $machine.Stamp, '-v', $DriverVersion)
    }
    if (-not $CatalogOs) { $CatalogOs = $machine.Catalog }
    $certificate = Get-TestCertificate
    $sign = @('sign', '/v', '/fd', 'sha256', '/sm', '/s', 'My', '/sha1', $certificate.Thumbprint)
    # The image before the catalogs, which hold its hash.
    Invoke-Native $signtool ($sign + @('/ph', (Join-Path $Package $ImageName)))
    Invoke-Native $inf2cat @("/driver:$Package", "/os:$CatalogOs", '/uselocaltime', '/verbose')
    foreach ($inf in $VnicInf, $LowerInf) {
        Invoke-Native $signtool ($sign + @(Join-Path $Package "$inf.cat"))
    }
}

function Get-TestCertificate {
    $subject = 'CN=ndkrocev2 test signing'
    $found = Get-ChildItem Cert:\LocalMachine\My | Where-Object {
        $_.Subject -eq $subject -and $_.HasPrivateKey -and $_.NotAfter -gt (Get-Date).AddDays(1)
    } | Select-Object -First 1
    if ($found) { return $found }
    New-SelfSignedCertificate -Type CodeSigningCert -Subject $subject -HashAlgorithm SHA256 `
        -CertStoreLocation Cert:\LocalMachine\My -NotAfter (Get-Date).AddYears(5)
}

function Assert-Package {
    foreach ($file in "$VnicInf.inf", "$VnicInf.cat", "$LowerInf.inf", "$LowerInf.cat", $ImageName) {
        if (-not (Test-Path (Join-Path $Package $file))) {
            throw "'$Package' lacks $file. Pass -Image to make the package, or another -Package."
        }
    }
}

# The certificate that signed both catalogs.
function Get-Signer {
    $signers = foreach ($inf in $VnicInf, $LowerInf) {
        $signature = Get-AuthenticodeSignature (Join-Path $Package "$inf.cat")
        if (-not $signature.SignerCertificate) { throw "$inf.cat is not signed." }
        $signature.SignerCertificate
    }
    if ($signers[0].Thumbprint -ne $signers[1].Thumbprint) {
        throw 'The two catalogs have different signers. Install both INFs from one build.'
    }
    return $signers[0]
}

function Install-Certificate {
    $signer = Get-Signer
    if ($signer.Subject -ne $signer.Issuer) {
        Write-Warning "The signer is not self-signed. Trust for '$($signer.Issuer)' is yours to install."
        return
    }
    foreach ($store in 'Root', 'TrustedPublisher') {
        if (Test-Path "Cert:\LocalMachine\$store\$($signer.Thumbprint)") { continue }
        Invoke-Step "$($signer.Subject) $($signer.Thumbprint)" "Trust in LocalMachine\$store" {
            $state.Certificate = $signer.Thumbprint
            $state.Stores = @($state.Stores) + $store
            Save-State
            Edit-CertificateStore $store 'Add' $signer
        } {
            param($with)
            Edit-CertificateStore $with.Store 'Remove' $with.Signer
            $state.Stores = @($state.Stores | Where-Object { $_ -ne $with.Store })
            Save-State
        } @{ Store = $store; Signer = $signer }
    }
}

# ---- The driver

function Install-Driver {
    $file = Join-Path $Package "$VnicInf.inf"
    $before = @(Get-StagedDriver | ForEach-Object { $_.Driver })
    # 259: nothing on this machine waits for the driver, which is so before the device exists.
    Invoke-Step $file 'Add to the driver store' {
        Invoke-Native 'pnputil.exe' @('/add-driver', $file) @(0, 259, 3010)
    } {
        param($before)
        Get-StagedDriver | Where-Object { $before -notcontains $_.Driver } | ForEach-Object {
            Invoke-Native 'pnputil.exe' @('/delete-driver', $_.Driver, '/uninstall') @(0, 3010)
        }
    } $before
    if (Test-LowerEdge) { return }
    $lower = Join-Path $Package "$LowerInf.inf"
    Invoke-Step $lower 'Install the lower edge' {
        Invoke-Native 'netcfg.exe' @('-v', '-l', $lower, '-c', 'p', '-i', $ComponentId)
        if (-not (Test-LowerEdge)) {
            throw "netcfg did not install $ComponentId. See $env:windir\inf\setupapi.dev.log."
        }
    } {
        if (Test-LowerEdge) { Invoke-Native 'netcfg.exe' @('-u', $ComponentId) }
    }
}

# What Get-Counter and perfmon show; the names of the counters are in the image.
function Install-Counters {
    Invoke-Step $CounterManifest 'Register the performance counters' {
        $service = Get-ItemProperty "HKLM:\SYSTEM\CurrentControlSet\Services\$ServiceName"
        $image = $service.ImagePath -replace '^\\SystemRoot', $env:windir -replace '^System32', "$env:windir\System32"
        # Those of another version: there need not be any.
        Invoke-Native 'unlodctr.exe' @("/m:$CounterManifest") (-1..65535) | Out-Null
        Invoke-Native 'lodctr.exe' @("/m:$CounterManifest", (Split-Path -Parent $image))
    } {
        Invoke-Native 'unlodctr.exe' @("/m:$CounterManifest")
    }
}

function Install-Device {
    if (Get-VnicDevice) { return }
    $tool = $DeviceTool
    if (-not $tool) { $tool = Find-Tool @('devgen.exe', 'devcon.exe') }
    if (-not $tool) {
        $message = 'Neither devgen.exe nor devcon.exe was found; the WDK has both, -DeviceTool names one.' +
            ' Without them: run hdwwiz.exe, choose to install from a list, Network adapters,' +
            " Have Disk, '$Package'; then run this script again."
        if (-not $WhatIfPreference) { throw $message }
        Write-Warning $message
        return
    }
    if ((Split-Path -Leaf $tool) -like 'devcon*') {
        # devcon says 1 where a restart is needed.
        $arguments = @('install', (Join-Path $Package "$VnicInf.inf"), $HardwareId)
        $accept = @(0, 1)
    }
    else {
        # Under ROOT the device outlives a restart; devgen's default bus forgets it.
        $arguments = @('/add', '/bus', 'ROOT', '/hardwareid', $HardwareId)
        $accept = @(0)
    }
    Invoke-Step $HardwareId "Create the device with $tool" {
        Invoke-Native $tool $arguments $accept
    } {
        Get-VnicDevice | ForEach-Object { Remove-VnicDevice $_.InstanceId }
    }
}

function Wait-Until([string] $What, [scriptblock] $Test) {
    foreach ($second in 1..30) {
        $found = & $Test
        if ($found) { return $found }
        Start-Sleep -Seconds 1
    }
    $log = "$env:windir\inf\setupapi.dev.log"
    throw "Waited 30 seconds in vain: $What. See $log, the system event log, and Get-PnpDevice."
}

# ---- The binding

function Connect-Vnic($Nic) {
    $keywords = @{
        LowerAdapter = $Nic.InterfaceGuid
        LowerMode    = @{ Inherit = '0'; Own = '1' }[$Mode]
    }
    Invoke-Step "$Name on $($Nic.Name)" "Set LowerAdapter and LowerMode ($Mode)" {
        $vnic = Get-Vnic
        if ($vnic.Name -ne $Name) { Rename-NetAdapter -Name $vnic.Name -NewName $Name -Confirm:$false }
        foreach ($keyword in $keywords.Keys) {
            Set-NetAdapterAdvancedProperty -Name $Name -RegistryKeyword $keyword `
                -RegistryValue $keywords[$keyword] -NoRestart -Confirm:$false
        }
        $state.NicGuid = $Nic.InterfaceGuid
        Save-State
    }
    if ($Mode -eq 'Inherit') { Disconnect-Tcpip $Nic }
    # The adapter reads its keywords when it starts; then the protocol is offered the NIC afresh.
    Invoke-Step $Name 'Restart the adapter' {
        Restart-NetAdapter -Name $Name -Confirm:$false
    }
    Invoke-Step $Nic.Name "Bind $ComponentId" {
        Disable-NetAdapterBinding -Name $Nic.Name -ComponentID $ComponentId -Confirm:$false
        Enable-NetAdapterBinding -Name $Nic.Name -ComponentID $ComponentId -Confirm:$false
    }
}

# One address cannot have two owners: in Inherit mode the NIC's own TCP/IP must be silent.
function Disconnect-Tcpip($Nic) {
    $bound = @(Get-NetAdapterBinding -Name $Nic.Name -ComponentID 'ms_tcpip', 'ms_tcpip6' |
            Where-Object { $_.Enabled } | ForEach-Object { $_.ComponentID })
    if ($bound.Count -eq 0) { return }
    $route = Get-NetRoute -InterfaceIndex $Nic.ifIndex -DestinationPrefix '0.0.0.0/0', '::/0' `
        -ErrorAction SilentlyContinue
    if ($route) {
        Write-Warning "'$($Nic.Name)' holds a default route: a remote session over it ends here."
    }
    Invoke-Step $Nic.Name "Unbind $($bound -join ', ')" {
        $state.Unbound = @(@($state.Unbound) + $bound | Where-Object { $_ } | Select-Object -Unique)
        Save-State
        Disable-NetAdapterBinding -Name $Nic.Name -ComponentID $bound -Confirm:$false
    } {
        param($with)
        Enable-NetAdapterBinding -Name $with.Nic -ComponentID $with.Bound -Confirm:$false
        $state.Unbound = @($state.Unbound | Where-Object { $with.Bound -notcontains $_ })
        Save-State
    } @{ Nic = $Nic.Name; Bound = $bound }
}

function Set-Address {
    if ($IPAddress) {
        $vnic = Get-Vnic
        $existing = $null
        if ($vnic) {
            $existing = Get-NetIPAddress -InterfaceIndex $vnic.ifIndex -IPAddress $IPAddress `
                -ErrorAction SilentlyContinue
        }
        if (-not $existing) {
            Invoke-Step $Name "Give it $IPAddress/$PrefixLength" {
                $address = @{ IPAddress = $IPAddress; PrefixLength = $PrefixLength }
                if ($DefaultGateway) { $address.DefaultGateway = $DefaultGateway }
                New-NetIPAddress -InterfaceIndex $vnic.ifIndex @address -Confirm:$false | Out-Null
            }
        }
    }
    if ($DnsServer) {
        Invoke-Step $Name "Give it the DNS servers $($DnsServer -join ', ')" {
            Set-DnsClientServerAddress -InterfaceAlias $Name -ServerAddresses $DnsServer -Confirm:$false
        }
    }
}

# ---- In this order

Assert-Machine
$nic = Get-Nic
try {
    if ($Image) {
        Invoke-Step $Package 'Make and sign the package' { New-Package }
    }
    if ($Image -and $WhatIfPreference) {
        Write-Host 'What if: the package would be checked and its signer trusted.'
    }
    else {
        Assert-Package
        Install-Certificate
    }
    Install-Driver
    Install-Counters
    Install-Device
    if (-not $WhatIfPreference) {
        Wait-Until 'the adapter does not appear' { Get-Vnic } | Out-Null
    }
    Connect-Vnic $nic
    Set-Address
}
catch {
    $problem = $_
    Write-Warning "Failed: $($problem.Exception.Message)"
    Undo-Steps
    throw $problem
}

if (-not $WhatIfPreference) {
    try {
        Wait-Until 'the link is not up' { Get-Vnic | Where-Object { $_.Status -eq 'Up' } } | Out-Null
    }
    catch {
        Write-Warning $_.Exception.Message
    }
    Get-NetAdapter -Name $Name |
        Format-Table -Property 'Name', 'InterfaceDescription', 'ifIndex', 'Status', 'MacAddress', 'LinkSpeed'
    Get-NetAdapterRdma -Name $Name | Format-List
}
